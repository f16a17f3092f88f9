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
   1.070950s  p    state operational>gather token loss
   1.071010s  r    state operational>gather join
   1.071022s  q    state operational>gather token loss
   1.123522s  q    branch consensus timeout
   1.123522s  q    state gather>gather consensus timeout
   1.123522s  q    branch join held back
   1.126950s  p    branch consensus timeout
   1.126950s  p    state gather>gather consensus timeout
   1.126950s  p    branch join held back
   1.129510s  r    branch consensus timeout
   1.129510s  r    state gather>gather consensus timeout
   1.129510s  r    branch join held back
   1.131088s  p    state gather>commit consensus
   1.131179s  q    state gather>commit consensus
   1.131258s  r    state gather>commit consensus
   1.131343s  p    state commit>recover commit token
   1.132865s  q    state commit>recover commit token
   1.132963s  r    state commit>recover commit token
   1.133347s  p    branch promise given
   1.133435s  q    branch promise given
   1.133435s  -    fault drop-next token from all count=99
   1.133509s  r    branch promise given
   1.133509s  -    fault dropped token from r
   1.153347s  p    branch token retransmitted
   1.153347s  -    fault dropped token from p
   1.153435s  q    branch token retransmitted
   1.153435s  -    fault dropped token from q
   1.153509s  r    branch token retransmitted
   1.153509s  -    fault dropped token from r
   1.173347s  -    fault dropped token from p
   1.173435s  -    fault dropped token from q
   1.173509s  -    fault dropped token from r
   1.193347s  -    fault dropped token from p
   1.193352s  p    branch recovery failed
   1.193352s  p    branch recovery failed after a promise
   1.193352s  p    state recover>gather token loss
   1.193352s  -    fault heal
   1.193417s  r    branch new ring given up by a member
   1.193417s  r    state recover>gather join
   1.193440s  q    branch recovery failed
   1.193440s  q    branch recovery failed after a promise
   1.193440s  q    state recover>gather token loss
   1.193539s  p    state gather>commit consensus
   1.193606s  q    state gather>commit consensus
   1.193677s  r    state gather>commit consensus
   1.195027s  p    state commit>recover commit token
   1.195127s  q    state commit>recover commit token
   1.195621s  r    state commit>recover commit token
   1.196169s  p    delivered 10 in 12@1 from 1.000647s to 1.000647s: 5 of p, 5 of s
   1.196169s  p    installs [p q r] transitional 18@1
   1.196169s  p    installs {p q r} regular 20@1
   1.196169s  p    state recover>operational ring installed
   1.196245s  q    delivered 10 in 12@1 from 1.000719s to 1.000719s: 5 of p, 5 of s
   1.196245s  q    installs [p q r] transitional 18@1
   1.196245s  q    installs {p q r} regular 20@1
   1.196245s  q    state recover>operational ring installed
   1.196320s  r    delivered 10 in 12@1 from 1.000790s to 1.000790s: 5 of p, 5 of s
   1.196320s  r    installs [p q r] transitional 18@1
   1.196320s  r    installs {p q r} regular 20@1
   1.196320s  r    state recover>operational ring installed
