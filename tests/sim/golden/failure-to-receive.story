   1.000000s  -    fault condition loss=1 token_loss=0 from all to r
   1.101116s  p    branch failure to receive
   1.101116s  p    state operational>gather failure to receive
   1.101183s  q    state operational>gather join
   1.101254s  p    state gather>commit consensus
   1.101344s  q    state gather>commit consensus
   1.101488s  p    state commit>recover commit token
   1.103030s  q    state commit>recover commit token
   1.103314s  p    branch promise given
   1.103396s  q    branch promise given
   1.103488s  p    delivered 46 in 12@1 from 1.000501s to 1.095230s: 46 of p
   1.103488s  p    installs [p q] transitional 14@1
   1.103488s  p    installs {p q} regular 16@1
   1.103488s  p    state recover>operational ring installed
   1.103556s  q    delivered 46 in 12@1 from 1.000599s to 1.095388s: 46 of p
   1.103556s  q    installs [p q] transitional 14@1
   1.103556s  q    installs {p q} regular 16@1
   1.103556s  q    state recover>operational ring installed
   1.121006s  r    branch token retransmitted
   1.200000s  -    fault condition from all to r
   1.201006s  r    state operational>gather token loss
   1.201080s  p    state operational>gather join
   1.201107s  q    state operational>gather join
   1.201212s  p    state gather>commit consensus
   1.201299s  q    state gather>commit consensus
   1.201364s  r    state gather>commit consensus
   1.202700s  p    state commit>recover commit token
   1.202785s  q    state commit>recover commit token
   1.202850s  r    state commit>recover commit token
   1.203185s  p    branch promise given
   1.203290s  q    branch promise given
   1.203364s  r    branch promise given
   1.203468s  p    delivered 19 in 16@1 from 1.103658s to 1.136851s: 19 of p
   1.203468s  p    installs [p q] transitional 18@1
   1.203468s  p    installs {p q r} regular 20@1
   1.203468s  p    state recover>operational ring installed
   1.203576s  q    delivered 19 in 16@1 from 1.103721s to 1.136923s: 19 of p
   1.203576s  q    installs [p q] transitional 18@1
   1.203576s  q    installs {p q r} regular 20@1
   1.203576s  q    state recover>operational ring installed
   1.203637s  r    installs [r] transitional 18@3
   1.203637s  r    installs {p q r} regular 20@1
   1.203637s  r    state recover>operational ring installed
