   1.000000s  s    fault crash s
   1.000000s  s    crash
   1.000000s  -    fault ambush at 'operational>gather'
   1.019913s  p    branch token retransmitted
   1.019969s  q    branch token retransmitted
   1.020010s  q    branch redundant token
   1.020035s  r    branch token retransmitted
   1.020043s  r    branch redundant token
   1.020119s  q    branch token handed on
   1.040053s  p    branch token handed on
   1.059921s  p    state operational>gather token loss
   1.059977s  q    state operational>gather token loss
   1.059986s  r    state operational>gather join
   1.059986s  r    fault leave r
   1.164977s  q    branch consensus timeout
   1.164977s  q    state gather>gather consensus timeout
   1.164977s  q    branch join held back
   1.170041s  r    state gather>gather join
   1.170041s  r    branch join held back
   1.170059s  p    state gather>gather join
   1.170059s  p    branch join held back
   1.180056s  p    state gather>commit consensus
   1.180133s  q    state gather>commit consensus
   1.180200s  r    state gather>commit consensus
   1.180292s  p    state commit>recover commit token
   1.181819s  q    state commit>recover commit token
   1.181889s  r    state commit>recover commit token
   1.182229s  p    branch promise given
   1.182295s  q    branch promise given
   1.182386s  r    branch promise given
   1.182460s  p    installs [p q r] transitional 14@1
   1.182460s  p    installs {p q r} regular 16@1
   1.182460s  p    state recover>operational ring installed
   1.182542s  q    installs [p q r] transitional 14@1
   1.182542s  q    installs {p q r} regular 16@1
   1.182542s  q    state recover>operational ring installed
   1.182637s  r    installs [p q r] transitional 14@1
   1.182637s  r    installs {p q r} regular 16@1
   1.182637s  r    state recover>operational ring installed
   1.182885s  r    state operational>left left
   1.182885s  r    leave
   1.182949s  q    branch graceful leave
   1.182949s  q    state operational>gather leave
   1.182997s  p    branch graceful leave
   1.182997s  p    state operational>gather leave
   1.183043s  p    state gather>commit consensus
   1.183136s  q    state gather>commit consensus
   1.184531s  p    state commit>recover commit token
   1.184635s  q    state commit>recover commit token
   1.184906s  p    branch promise given
   1.184970s  q    branch promise given
   1.185062s  p    installs [p q] transitional 18@1
   1.185062s  p    installs {p q} regular 20@1
   1.185062s  p    state recover>operational ring installed
   1.185167s  q    installs [p q] transitional 18@1
   1.185167s  q    installs {p q} regular 20@1
   1.185167s  q    state recover>operational ring installed
