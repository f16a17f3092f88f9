   1.002000s  s    fault crash s
   1.002000s  s    delivered 10 in 12@1 from 1.000555s to 1.000882s: 5 of p, 5 of s
   1.002000s  s    crash
   1.002000s  -    fault ambush at 'promise given'
   1.002000s  -    fault ambush at 'recover>gather'
   1.030950s  p    branch token retransmitted
   1.031022s  q    branch token retransmitted
   1.031041s  q    branch redundant token
   1.031085s  r    branch redundant token
   1.031097s  r    branch token retransmitted
   1.031160s  q    branch token handed on
   1.051092s  p    branch token handed on
   1.070950s  p    state operational>gather token loss
   1.071011s  r    state operational>gather join
   1.071022s  q    state operational>gather token loss
   1.123522s  q    branch consensus timeout
   1.123522s  q    state gather>gather consensus timeout
   1.123522s  q    branch join held back
   1.126950s  p    branch consensus timeout
   1.126950s  p    state gather>gather consensus timeout
   1.126950s  p    branch join held back
   1.129511s  r    branch consensus timeout
   1.129511s  r    state gather>gather consensus timeout
   1.129511s  r    branch join held back
   1.131120s  p    state gather>commit consensus
   1.131178s  q    state gather>commit consensus
   1.131265s  r    state gather>commit consensus
   1.131354s  p    state commit>recover commit token
   1.132864s  q    state commit>recover commit token
   1.132963s  r    state commit>recover commit token
   1.133253s  p    branch promise given
   1.133348s  q    branch promise given
   1.133348s  -    fault drop-next token from all count=99
   1.133453s  r    branch promise given
   1.133453s  -    fault dropped token from r
   1.153253s  p    branch token retransmitted
   1.153253s  -    fault dropped token from p
   1.153253s  -    fault dropped token from p
   1.153348s  q    branch token retransmitted
   1.153348s  -    fault dropped token from q
   1.153348s  -    fault dropped token from q
   1.153453s  r    branch token retransmitted
   1.153453s  -    fault dropped token from r
   1.153453s  -    fault dropped token from r
   1.173253s  -    fault dropped token from p
   1.173253s  -    fault dropped token from p
   1.173348s  -    fault dropped token from q
   1.173348s  -    fault dropped token from q
   1.173453s  -    fault dropped token from r
   1.173453s  -    fault dropped token from r
   1.193253s  -    fault dropped token from p
   1.193253s  -    fault dropped token from p
   1.193261s  p    branch recovery failed
   1.193261s  p    branch recovery failed after a promise
   1.193261s  p    state recover>gather token loss
   1.193261s  -    fault heal
   1.193339s  q    branch new ring given up by a member
   1.193339s  q    state recover>gather join
   1.193347s  r    branch new ring given up by a member
   1.193347s  r    state recover>gather join
   1.193409s  p    state gather>commit consensus
   1.193479s  q    state gather>commit consensus
   1.193550s  r    state gather>commit consensus
   1.194897s  p    state commit>recover commit token
   1.194984s  q    state commit>recover commit token
   1.195494s  r    state commit>recover commit token
   1.196058s  p    delivered 10 in 12@1 from 1.000647s to 1.000647s: 5 of p, 5 of s
   1.196058s  p    installs [p q r] transitional 18@1
   1.196058s  p    installs {p q r} regular 20@1
   1.196058s  p    state recover>operational ring installed
   1.196145s  q    delivered 10 in 12@1 from 1.000719s to 1.000719s: 5 of p, 5 of s
   1.196145s  q    installs [p q r] transitional 18@1
   1.196145s  q    installs {p q r} regular 20@1
   1.196145s  q    state recover>operational ring installed
   1.196248s  r    delivered 10 in 12@1 from 1.000790s to 1.000790s: 5 of p, 5 of s
   1.196248s  r    installs [p q r] transitional 18@1
   1.196248s  r    installs {p q r} regular 20@1
   1.196248s  r    state recover>operational ring installed
