   1.000000s  -    fault ambush at 'commit>recover'
   1.000000s  -    fault ambush at 'recover>gather'
   1.000000s  s    fault crash s
   1.000000s  s    crash
   1.019913s  p    branch token retransmitted
   1.019969s  q    branch token retransmitted
   1.020010s  q    branch redundant token
   1.020035s  r    branch token retransmitted
   1.020070s  r    branch redundant token
   1.059918s  p    state operational>gather token loss
   1.059974s  q    state operational>gather token loss
   1.060000s  r    state operational>gather join
   1.112474s  q    branch consensus timeout
   1.112474s  q    state gather>gather consensus timeout
   1.112474s  q    branch join held back
   1.115918s  p    branch consensus timeout
   1.115918s  p    state gather>gather consensus timeout
   1.115918s  p    branch join held back
   1.118500s  r    branch consensus timeout
   1.118500s  r    state gather>gather consensus timeout
   1.118500s  r    branch join held back
   1.120104s  p    state gather>commit consensus
   1.120198s  q    state gather>commit consensus
   1.120290s  r    state gather>commit consensus
   1.120369s  p    state commit>recover commit token
   1.120369s  -    fault drop-next commit-token from q count=99
   1.121884s  q    state commit>recover commit token
   1.121884s  -    fault dropped commit-token from q
   1.140290s  r    branch token retransmitted
   1.140348s  p    branch redundant commit token
   1.140369s  p    branch token retransmitted
   1.140471s  q    branch redundant commit token
   1.141884s  q    branch token retransmitted
   1.141884s  -    fault dropped commit-token from q
   1.161884s  -    fault dropped commit-token from q
   1.180374s  p    branch recovery failed
   1.180374s  p    branch commit token lost on its second rotation
   1.180374s  p    state recover>gather token loss
   1.180374s  -    fault heal
   1.180456s  q    branch new ring given up by a member
   1.180456s  q    state recover>gather join
   1.180457s  r    branch new ring given up by a member
   1.180457s  r    state commit>gather join
   1.180534s  p    state gather>commit consensus
   1.180616s  q    state gather>commit consensus
   1.180687s  r    state gather>commit consensus
   1.182022s  p    state commit>recover commit token
   1.182085s  q    state commit>recover commit token
   1.182631s  r    state commit>recover commit token
   1.182940s  p    branch promise given
   1.183045s  q    branch promise given
   1.183117s  r    branch promise given
   1.183192s  p    installs [p q r] transitional 18@1
   1.183192s  p    installs {p q r} regular 20@1
   1.183192s  p    state recover>operational ring installed
   1.183254s  q    installs [p q r] transitional 18@1
   1.183254s  q    installs {p q r} regular 20@1
   1.183254s  q    state recover>operational ring installed
   1.183345s  r    installs [p q r] transitional 18@1
   1.183345s  r    installs {p q r} regular 20@1
   1.183345s  r    state recover>operational ring installed
