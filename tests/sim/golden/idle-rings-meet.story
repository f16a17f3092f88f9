   1.500000s  -    fault heal
   1.500568s  r    branch idle rings meet
   1.500568s  r    state operational>gather foreign message
   1.500582s  s    branch idle rings meet
   1.500582s  s    state operational>gather foreign message
   1.500637s  q    state operational>gather join
   1.500639s  p    state operational>gather join
   1.500719s  r    state gather>gather join
   1.500719s  r    branch join held back
   1.500724s  s    state gather>gather join
   1.500724s  s    branch join held back
   1.503183s  p    state gather>commit consensus
   1.503268s  q    state gather>commit consensus
   1.503365s  r    state gather>commit consensus
   1.503437s  s    state gather>commit consensus
   1.504671s  p    state commit>recover commit token
   1.504741s  q    state commit>recover commit token
   1.505309s  r    state commit>recover commit token
   1.505405s  s    state commit>recover commit token
   1.505884s  p    branch promise given
   1.505993s  q    branch promise given
   1.506067s  r    branch promise given
   1.506168s  s    branch promise given
   1.506268s  p    installs [p q] transitional 18@1
   1.506268s  p    installs {p q r s} regular 20@1
   1.506268s  p    state recover>operational ring installed
   1.506374s  q    installs [p q] transitional 18@1
   1.506374s  q    installs {p q r s} regular 20@1
   1.506374s  q    state recover>operational ring installed
   1.506444s  r    installs [r s] transitional 18@3
   1.506444s  r    installs {p q r s} regular 20@1
   1.506444s  r    state recover>operational ring installed
   1.506551s  s    installs [r s] transitional 18@3
   1.506551s  s    installs {p q r s} regular 20@1
   1.506551s  s    state recover>operational ring installed
