   1.500000s  -    fault heal
   1.500566s  r    branch idle rings meet
   1.500566s  r    state operational>gather foreign message
   1.500590s  s    branch idle rings meet
   1.500590s  s    state operational>gather foreign message
   1.500623s  q    state operational>gather join
   1.500658s  p    state operational>gather join
   1.500687s  s    state gather>gather join
   1.500687s  s    branch join held back
   1.500724s  r    state gather>gather join
   1.500724s  r    branch join held back
   1.503164s  p    state gather>commit consensus
   1.503250s  q    state gather>commit consensus
   1.503359s  r    state gather>commit consensus
   1.503436s  s    state gather>commit consensus
   1.504652s  p    state commit>recover commit token
   1.504756s  q    state commit>recover commit token
   1.505303s  r    state commit>recover commit token
   1.505399s  s    state commit>recover commit token
   1.505872s  p    branch promise given
   1.505949s  q    branch promise given
   1.506017s  r    branch promise given
   1.506102s  s    branch promise given
   1.506205s  p    installs [p q] transitional 18@1
   1.506205s  p    installs {p q r s} regular 20@1
   1.506205s  p    state recover>operational ring installed
   1.506297s  q    installs [p q] transitional 18@1
   1.506297s  q    installs {p q r s} regular 20@1
   1.506297s  q    state recover>operational ring installed
   1.506372s  r    installs [r s] transitional 18@3
   1.506372s  r    installs {p q r s} regular 20@1
   1.506372s  r    state recover>operational ring installed
   1.506477s  s    installs [r s] transitional 18@3
   1.506477s  s    installs {p q r s} regular 20@1
   1.506477s  s    state recover>operational ring installed
