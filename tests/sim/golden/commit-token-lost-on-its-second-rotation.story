   1.000000s  -    fault ambush at 'commit>recover'
   1.000000s  -    fault ambush at 'recover>gather'
   1.000000s  s    fault crash s
   1.000000s  s    crash
   1.019913s  p    branch token retransmitted
   1.019969s  q    branch token retransmitted
   1.020010s  q    branch redundant token
   1.020035s  r    branch token retransmitted
   1.020070s  r    branch redundant token
   1.040106s  q    branch token handed on
   1.059921s  p    state operational>gather token loss
   1.059988s  q    state operational>gather token loss
   1.060024s  r    state operational>gather join
   1.112488s  q    branch consensus timeout
   1.112488s  q    state gather>gather consensus timeout
   1.112488s  q    branch join held back
   1.115921s  p    branch consensus timeout
   1.115921s  p    state gather>gather consensus timeout
   1.115921s  p    branch join held back
   1.118524s  r    branch consensus timeout
   1.118524s  r    state gather>gather consensus timeout
   1.118524s  r    branch join held back
   1.120093s  p    state gather>commit consensus
   1.120176s  q    state gather>commit consensus
   1.120248s  r    state gather>commit consensus
   1.120331s  p    state commit>recover commit token
   1.120331s  -    fault drop-next commit-token from q count=99
   1.121862s  q    state commit>recover commit token
   1.121862s  -    fault dropped commit-token from q
   1.140248s  r    branch token retransmitted
   1.140331s  p    branch token retransmitted
   1.140340s  p    branch redundant commit token
   1.140397s  q    branch redundant commit token
   1.141862s  q    branch token retransmitted
   1.141862s  -    fault dropped commit-token from q
   1.161862s  -    fault dropped commit-token from q
   1.180343s  p    branch recovery failed
   1.180343s  p    branch commit token lost on its second rotation
   1.180343s  p    state recover>gather token loss
   1.180343s  -    fault heal
   1.180406s  r    branch new ring given up by a member
   1.180406s  r    state commit>gather join
   1.180433s  q    branch new ring given up by a member
   1.180433s  q    state recover>gather join
   1.180491s  p    state gather>commit consensus
   1.180561s  q    state gather>commit consensus
   1.180623s  r    state gather>commit consensus
   1.181979s  p    state commit>recover commit token
   1.182050s  q    state commit>recover commit token
   1.182567s  r    state commit>recover commit token
   1.182909s  p    branch promise given
   1.182970s  q    branch promise given
   1.183066s  r    branch promise given
   1.183145s  p    installs [p q r] transitional 18@1
   1.183145s  p    installs {p q r} regular 20@1
   1.183145s  p    state recover>operational ring installed
   1.183230s  q    installs [p q r] transitional 18@1
   1.183230s  q    installs {p q r} regular 20@1
   1.183230s  q    state recover>operational ring installed
   1.183324s  r    installs [p q r] transitional 18@1
   1.183324s  r    installs {p q r} regular 20@1
   1.183324s  r    state recover>operational ring installed
