   1.000000s  -    fault condition loss=1 token_loss=0 from all to r
   1.101267s  p    branch failure to receive
   1.101267s  p    state operational>gather failure to receive
   1.101362s  q    state operational>gather join
   1.101466s  p    state gather>commit consensus
   1.101543s  q    state gather>commit consensus
   1.101700s  p    state commit>recover commit token
   1.103229s  q    state commit>recover commit token
   1.103471s  p    branch promise given
   1.103574s  q    branch promise given
   1.103658s  p    delivered 46 in 12@1 from 1.000501s to 1.094977s: 46 of p
   1.103658s  p    installs [p q] transitional 14@1
   1.103658s  p    installs {p q} regular 16@1
   1.103658s  p    state recover>operational ring installed
   1.103734s  q    delivered 46 in 12@1 from 1.000599s to 1.095153s: 46 of p
   1.103734s  q    installs [p q] transitional 14@1
   1.103734s  q    installs {p q} regular 16@1
   1.103734s  q    state recover>operational ring installed
   1.121178s  r    branch token retransmitted
   1.200000s  -    fault condition from all to r
   1.201178s  r    state operational>gather token loss
   1.201238s  q    state operational>gather join
   1.201263s  p    state operational>gather join
   1.201319s  p    state gather>commit consensus
   1.201419s  q    state gather>commit consensus
   1.201493s  r    state gather>commit consensus
   1.202807s  p    state commit>recover commit token
   1.202910s  q    state commit>recover commit token
   1.202971s  r    state commit>recover commit token
   1.203352s  p    branch promise given
   1.203424s  q    branch promise given
   1.203518s  r    branch promise given
   1.203586s  p    delivered 19 in 16@1 from 1.103829s to 1.136851s: 19 of p
   1.203586s  p    installs [p q] transitional 18@1
   1.203586s  p    installs {p q r} regular 20@1
   1.203586s  p    state recover>operational ring installed
   1.203674s  q    delivered 19 in 16@1 from 1.103923s to 1.136920s: 19 of p
   1.203674s  q    installs [p q] transitional 18@1
   1.203674s  q    installs {p q r} regular 20@1
   1.203674s  q    state recover>operational ring installed
   1.203747s  r    installs [r] transitional 18@3
   1.203747s  r    installs {p q r} regular 20@1
   1.203747s  r    state recover>operational ring installed
