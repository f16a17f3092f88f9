   1.002000s  s    fault crash s
   1.002000s  s    delivered 10 in 12@1 from 1.000555s to 1.000882s: 5 of p, 5 of s
   1.002000s  s    crash
   1.002000s  -    fault ambush at 'promise given'
   1.002000s  -    fault ambush at 'recover>gather'
   1.030950s  p    branch token retransmitted
   1.031022s  q    branch token retransmitted
   1.031041s  q    branch redundant token
   1.031097s  r    branch token retransmitted
   1.031124s  r    branch redundant token
   1.051162s  q    branch token handed on
   1.070950s  p    state operational>gather token loss
   1.071022s  q    state operational>gather token loss
   1.071036s  r    state operational>gather join
   1.123522s  q    branch consensus timeout
   1.123522s  q    state gather>gather consensus timeout
   1.123522s  q    branch join held back
   1.126950s  p    branch consensus timeout
   1.126950s  p    state gather>gather consensus timeout
   1.126950s  p    branch join held back
   1.129536s  r    branch consensus timeout
   1.129536s  r    state gather>gather consensus timeout
   1.129536s  r    branch join held back
   1.131107s  p    state gather>commit consensus
   1.131212s  q    state gather>commit consensus
   1.131300s  r    state gather>commit consensus
   1.131374s  p    state commit>recover commit token
   1.132898s  q    state commit>recover commit token
   1.132963s  r    state commit>recover commit token
   1.133256s  p    branch promise given
   1.133317s  q    branch promise given
   1.133317s  -    fault drop-next token from all count=99
   1.133421s  r    branch promise given
   1.133421s  -    fault dropped token from r
   1.153256s  p    branch token retransmitted
   1.153256s  -    fault dropped token from p
   1.153317s  q    branch token retransmitted
   1.153317s  -    fault dropped token from q
   1.153421s  r    branch token retransmitted
   1.153421s  -    fault dropped token from r
   1.173256s  -    fault dropped token from p
   1.173256s  -    fault dropped token from p
   1.173317s  -    fault dropped token from q
   1.173317s  -    fault dropped token from q
   1.173421s  -    fault dropped token from r
   1.173421s  -    fault dropped token from r
   1.193256s  -    fault dropped token from p
   1.193256s  -    fault dropped token from p
   1.193264s  p    branch recovery failed
   1.193264s  p    branch recovery failed after a promise
   1.193264s  p    state recover>gather token loss
   1.193264s  -    fault heal
   1.193326s  q    branch recovery failed
   1.193326s  q    branch recovery failed after a promise
   1.193326s  q    state recover>gather token loss
   1.193330s  r    branch new ring given up by a member
   1.193330s  r    state recover>gather join
   1.193426s  p    state gather>commit consensus
   1.193503s  q    state gather>commit consensus
   1.193570s  r    state gather>commit consensus
   1.194914s  p    state commit>recover commit token
   1.194985s  q    state commit>recover commit token
   1.195514s  r    state commit>recover commit token
   1.196080s  p    delivered 10 in 12@1 from 1.000647s to 1.000647s: 5 of p, 5 of s
   1.196080s  p    installs [p q r] transitional 18@1
   1.196080s  p    installs {p q r} regular 20@1
   1.196080s  p    state recover>operational ring installed
   1.196162s  q    delivered 10 in 12@1 from 1.000719s to 1.000719s: 5 of p, 5 of s
   1.196162s  q    installs [p q r] transitional 18@1
   1.196162s  q    installs {p q r} regular 20@1
   1.196162s  q    state recover>operational ring installed
   1.196257s  r    delivered 10 in 12@1 from 1.000790s to 1.000790s: 5 of p, 5 of s
   1.196257s  r    installs [p q r] transitional 18@1
   1.196257s  r    installs {p q r} regular 20@1
   1.196257s  r    state recover>operational ring installed
