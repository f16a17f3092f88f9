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
   1.201238s  p    state operational>gather join
   1.201259s  q    state operational>gather join
   1.201357s  p    state gather>commit consensus
   1.201426s  q    state gather>commit consensus
   1.201530s  r    state gather>commit consensus
   1.202845s  p    state commit>recover commit token
   1.202901s  q    state commit>recover commit token
   1.203011s  r    state commit>recover commit token
   1.203354s  p    branch promise given
   1.203448s  q    branch promise given
   1.203516s  r    branch promise given
   1.203604s  p    delivered 19 in 16@1 from 1.103829s to 1.136851s: 19 of p
   1.203604s  p    installs [p q] transitional 18@1
   1.203604s  p    installs {p q r} regular 20@1
   1.203604s  p    state recover>operational ring installed
   1.203677s  q    delivered 19 in 16@1 from 1.103923s to 1.136930s: 19 of p
   1.203677s  q    installs [p q] transitional 18@1
   1.203677s  q    installs {p q r} regular 20@1
   1.203677s  q    state recover>operational ring installed
   1.203775s  r    installs [r] transitional 18@3
   1.203775s  r    installs {p q r} regular 20@1
   1.203775s  r    state recover>operational ring installed
