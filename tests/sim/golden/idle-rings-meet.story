   1.500000s  -    fault heal
   1.500590s  r    branch idle rings meet
   1.500590s  r    state operational>gather foreign message
   1.500600s  s    branch idle rings meet
   1.500600s  s    state operational>gather foreign message
   1.500647s  p    state operational>gather join
   1.500692s  q    state operational>gather join
   1.500711s  r    state gather>gather join
   1.500711s  r    branch join held back
   1.500750s  s    state gather>gather join
   1.500750s  s    branch join held back
   1.503196s  p    state gather>commit consensus
   1.503300s  q    state gather>commit consensus
   1.503377s  r    state gather>commit consensus
   1.503480s  s    state gather>commit consensus
   1.504684s  p    state commit>recover commit token
   1.504753s  q    state commit>recover commit token
   1.505321s  r    state commit>recover commit token
   1.505416s  s    state commit>recover commit token
   1.505866s  p    branch promise given
   1.505934s  q    branch promise given
   1.506019s  r    branch promise given
   1.506122s  s    branch promise given
   1.506214s  p    installs [p q] transitional 18@1
   1.506214s  p    installs {p q r s} regular 20@1
   1.506214s  p    state recover>operational ring installed
   1.506289s  q    installs [p q] transitional 18@1
   1.506289s  q    installs {p q r s} regular 20@1
   1.506289s  q    state recover>operational ring installed
   1.506394s  r    installs [r s] transitional 18@3
   1.506394s  r    installs {p q r s} regular 20@1
   1.506394s  r    state recover>operational ring installed
   1.506471s  s    installs [r s] transitional 18@3
   1.506471s  s    installs {p q r s} regular 20@1
   1.506471s  s    state recover>operational ring installed
