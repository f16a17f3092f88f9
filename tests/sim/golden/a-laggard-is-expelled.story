   1.000000s  -    fault condition loss=0.7 token_loss=0 from all to r
   1.051324s  q    branch laggard expelled
   1.051324s  q    state operational>gather laggard expelled
   1.051397s  p    state operational>gather join
   1.051397s  p    state gather>commit consensus
   1.051489s  q    state gather>commit consensus
   1.051631s  p    state commit>recover commit token
   1.053175s  q    state commit>recover commit token
   1.053410s  p    branch promise given
   1.053515s  q    branch promise given
   1.053597s  p    delivered 583 in 12@1 from 1.000000s to 1.051126s: 102 of p, 481 of q
   1.053597s  p    installs [p q] transitional 14@1
   1.053597s  p    installs {p q} regular 16@1
   1.053597s  p    state recover>operational ring installed
   1.053695s  q    delivered 583 in 12@1 from 1.000605s to 1.051006s: 102 of p, 481 of q
   1.053695s  q    installs [p q] transitional 14@1
   1.053695s  q    installs {p q} regular 16@1
   1.053695s  q    state recover>operational ring installed
   1.071127s  r    branch token retransmitted
   1.151127s  r    state operational>gather token loss
   1.151198s  p    branch laggard not taken back yet
   1.151228s  q    branch laggard not taken back yet
   1.200000s  -    fault condition from all to r
   1.209627s  r    branch consensus timeout
   1.209627s  r    state gather>gather consensus timeout
   1.209627s  r    branch join held back
   1.209627s  r    state gather>commit consensus
   1.210476s  r    state commit>recover commit token
   1.210811s  r    branch promise given
   1.210831s  r    delivered 482 in 12@1 from 1.003477s to 1.047307s: 83 of p, 399 of q
   1.210831s  r    installs [r] transitional 14@3
   1.210831s  r    installs {r} regular 16@3
   1.210831s  r    state recover>operational ring installed
   1.750716s  r    branch idle rings meet
   1.750716s  r    state operational>gather foreign message
   1.750773s  q    state operational>gather join
   1.750780s  p    state operational>gather join
   1.750863s  r    state gather>gather join
   1.750863s  r    branch join held back
   1.750939s  p    state gather>commit consensus
   1.751000s  q    state gather>commit consensus
   1.751102s  r    state gather>commit consensus
   1.752427s  p    state commit>recover commit token
   1.752499s  q    state commit>recover commit token
   1.753046s  r    state commit>recover commit token
   1.753375s  p    branch promise given
   1.753452s  q    branch promise given
   1.753535s  r    branch promise given
   1.753609s  p    delivered 2850 in 16@1 from 1.053771s to 1.111069s: 1434 of p, 1416 of q
   1.753609s  p    installs [p q] transitional 18@1
   1.753609s  p    installs {p q r} regular 20@1
   1.753609s  p    state recover>operational ring installed
   1.753679s  q    delivered 2850 in 16@1 from 1.053876s to 1.111186s: 1434 of p, 1416 of q
   1.753679s  q    installs [p q] transitional 18@1
   1.753679s  q    installs {p q r} regular 20@1
   1.753679s  q    state recover>operational ring installed
   1.753772s  r    installs [r] transitional 18@3
   1.753772s  r    installs {p q r} regular 20@1
   1.753772s  r    state recover>operational ring installed
