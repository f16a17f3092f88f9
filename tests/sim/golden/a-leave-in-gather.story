   1.000000s  s    fault crash s
   1.000000s  s    crash
   1.000000s  -    fault ambush at 'operational>gather'
   1.019913s  p    branch token retransmitted
   1.019969s  q    branch token retransmitted
   1.020010s  q    branch redundant token
   1.020035s  r    branch token retransmitted
   1.020070s  r    branch redundant token
   1.059918s  p    state operational>gather token loss
   1.059974s  q    state operational>gather token loss
   1.060000s  r    state operational>gather join
   1.060000s  r    fault leave r
   1.164974s  q    branch consensus timeout
   1.164974s  q    state gather>gather consensus timeout
   1.164974s  q    branch join held back
   1.170030s  p    state gather>gather join
   1.170030s  p    branch join held back
   1.170065s  r    state gather>gather join
   1.170065s  r    branch join held back
   1.180097s  p    state gather>commit consensus
   1.180155s  q    state gather>commit consensus
   1.180242s  r    state gather>commit consensus
   1.180331s  p    state commit>recover commit token
   1.181841s  q    state commit>recover commit token
   1.181940s  r    state commit>recover commit token
   1.182230s  p    branch promise given
   1.182325s  q    branch promise given
   1.182430s  r    branch promise given
   1.182513s  p    installs [p q r] transitional 14@1
   1.182513s  p    installs {p q r} regular 16@1
   1.182513s  p    state recover>operational ring installed
   1.182604s  q    installs [p q r] transitional 14@1
   1.182604s  q    installs {p q r} regular 16@1
   1.182604s  q    state recover>operational ring installed
   1.182679s  r    installs [p q r] transitional 14@1
   1.182679s  r    installs {p q r} regular 16@1
   1.182679s  r    state recover>operational ring installed
   1.182915s  r    state operational>left left
   1.182915s  r    leave
   1.182994s  q    branch graceful leave
   1.182994s  q    state operational>gather leave
   1.183002s  p    branch graceful leave
   1.183002s  p    state operational>gather leave
   1.183060s  p    state gather>commit consensus
   1.183129s  q    state gather>commit consensus
   1.184548s  p    state commit>recover commit token
   1.184638s  q    state commit>recover commit token
   1.184886s  p    branch promise given
   1.184989s  q    branch promise given
   1.185098s  p    installs [p q] transitional 18@1
   1.185098s  p    installs {p q} regular 20@1
   1.185098s  p    state recover>operational ring installed
   1.185159s  q    installs [p q] transitional 18@1
   1.185159s  q    installs {p q} regular 20@1
   1.185159s  q    state recover>operational ring installed
