   2.000000s  -    fault ambush at 'commit>recover'
   2.000000s  s    fault leave s
   2.002328s  s    state operational>left left
   2.002328s  s    leave
   2.002406s  q    branch graceful leave
   2.002406s  q    state operational>gather leave
   2.002431s  p    branch graceful leave
   2.002431s  p    state operational>gather leave
   2.002434s  r    branch graceful leave
   2.002434s  r    state operational>gather leave
   2.002527s  p    state gather>commit consensus
   2.002624s  q    state gather>commit consensus
   2.002734s  r    state gather>commit consensus
   2.002828s  p    state commit>recover commit token
   2.004310s  q    state commit>recover commit token
   2.004375s  r    state commit>recover commit token
   2.004375s  -    fault drop-next token from all count=1
   2.004483s  -    fault dropped token from p
   2.054375s  r    branch token retransmitted
   2.054443s  p    branch redundant commit token
   2.104381s  r    branch recovery failed
   2.104381s  r    branch commit token lost on its second rotation
   2.104381s  r    state recover>gather token loss
   2.104465s  p    branch new ring given up by a member
   2.104465s  p    state recover>gather join
   2.104479s  q    branch new ring given up by a member
   2.104479s  q    state recover>gather join
   2.104547s  p    state gather>commit consensus
   2.104608s  q    state gather>commit consensus
   2.104708s  r    state gather>commit consensus
   2.106035s  p    state commit>recover commit token
   2.106136s  q    state commit>recover commit token
   2.106652s  r    state commit>recover commit token
   2.106987s  p    branch promise given
   2.107065s  q    branch promise given
   2.107134s  r    branch promise given
   2.107234s  p    installs [p q r] transitional 18@1
   2.107234s  p    installs {p q r} regular 20@1
   2.107234s  p    state recover>operational ring installed
   2.107311s  q    installs [p q r] transitional 18@1
   2.107311s  q    installs {p q r} regular 20@1
   2.107311s  q    state recover>operational ring installed
   2.107392s  r    installs [p q r] transitional 18@1
   2.107392s  r    installs {p q r} regular 20@1
   2.107392s  r    state recover>operational ring installed
