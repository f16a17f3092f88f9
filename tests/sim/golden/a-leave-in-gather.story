   1.000000s  s    fault crash s
   1.000000s  s    crash
   1.000000s  -    fault ambush at 'operational>gather'
   1.019913s  p    branch token retransmitted
   1.019969s  q    branch token retransmitted
   1.020010s  q    branch redundant token
   1.020035s  r    branch token retransmitted
   1.020070s  r    branch redundant token
   1.040106s  q    branch token handed on
   1.059921s  p    state operational>gather token loss
   1.059988s  q    state operational>gather token loss
   1.060024s  r    state operational>gather join
   1.060024s  r    fault leave r
   1.164988s  q    branch consensus timeout
   1.164988s  q    state gather>gather consensus timeout
   1.164988s  q    branch join held back
   1.170059s  p    state gather>gather join
   1.170059s  p    branch join held back
   1.170087s  r    state gather>gather join
   1.170087s  r    branch join held back
   1.180048s  p    state gather>commit consensus
   1.180126s  q    state gather>commit consensus
   1.180217s  r    state gather>commit consensus
   1.180292s  p    state commit>recover commit token
   1.181812s  q    state commit>recover commit token
   1.181893s  r    state commit>recover commit token
   1.182202s  p    branch promise given
   1.182277s  q    branch promise given
   1.182348s  r    branch promise given
   1.182439s  p    installs [p q r] transitional 14@1
   1.182439s  p    installs {p q r} regular 16@1
   1.182439s  p    state recover>operational ring installed
   1.182531s  q    installs [p q r] transitional 14@1
   1.182531s  q    installs {p q r} regular 16@1
   1.182531s  q    state recover>operational ring installed
   1.182617s  r    installs [p q r] transitional 14@1
   1.182617s  r    installs {p q r} regular 16@1
   1.182617s  r    state recover>operational ring installed
   1.182848s  r    state operational>left left
   1.182848s  r    leave
   1.182920s  q    branch graceful leave
   1.182920s  q    state operational>gather leave
   1.182946s  p    branch graceful leave
   1.182946s  p    state operational>gather leave
   1.183002s  p    state gather>commit consensus
   1.183067s  q    state gather>commit consensus
   1.184490s  p    state commit>recover commit token
   1.184577s  q    state commit>recover commit token
   1.184841s  p    branch promise given
   1.184909s  q    branch promise given
   1.185018s  p    installs [p q] transitional 18@1
   1.185018s  p    installs {p q} regular 20@1
   1.185018s  p    state recover>operational ring installed
   1.185090s  q    installs [p q] transitional 18@1
   1.185090s  q    installs {p q} regular 20@1
   1.185090s  q    state recover>operational ring installed
