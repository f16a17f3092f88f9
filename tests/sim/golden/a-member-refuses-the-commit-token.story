   0.251862s  1    branch idle rings meet
   0.251862s  1    state operational>gather foreign message
   0.251929s  3    branch idle rings meet
   0.251929s  3    state operational>gather foreign message
   0.252002s  2    state operational>gather join
   0.252117s  3    state gather>gather join
   0.252117s  3    branch join held back
   0.252192s  2    state gather>gather join
   0.252192s  2    branch join held back
   0.252192s  1    state gather>commit consensus
   0.254750s  1    branch new ring refused by a member
   0.254750s  1    state commit>gather join
   0.264719s  1    state gather>commit consensus
   0.264945s  2    state gather>commit consensus
   0.265094s  3    state gather>commit consensus
   0.265425s  1    state commit>recover commit token
   0.265622s  2    state commit>recover commit token
   0.265915s  3    state commit>recover commit token
   0.266864s  1    branch promise given
   0.267125s  2    branch promise given
   0.267372s  3    branch promise given
   0.267598s  1    installs [1] transitional 14@1
   0.267598s  1    installs {1 2 3} regular 16@1
   0.267598s  1    state recover>operational ring installed
   0.267810s  2    installs [2] transitional 14@2
   0.267810s  2    installs {1 2 3} regular 16@1
   0.267810s  2    state recover>operational ring installed
   0.267985s  3    installs [3] transitional 14@3
   0.267985s  3    installs {1 2 3} regular 16@1
   0.267985s  3    state recover>operational ring installed
