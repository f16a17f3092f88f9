   1.000000s  -    fault heal
   1.000581s  r    branch idle rings meet
   1.000581s  r    state operational>gather foreign message
   1.000583s  s    branch idle rings meet
   1.000583s  s    state operational>gather foreign message
   1.000597s  p    branch idle rings meet
   1.000597s  p    state operational>gather foreign message
   1.000613s  t    branch idle rings meet
   1.000613s  t    state operational>gather foreign message
   1.000640s  t    state gather>gather join
   1.000640s  t    branch join held back
   1.000648s  q    state operational>gather join
   1.000648s  q    state gather>commit consensus
   1.000651s  p    state gather>gather join
   1.000651s  p    branch join held back
   1.000657s  s    state gather>gather join
   1.000657s  s    branch join held back
   1.000660s  p    state gather>gather join
   1.000661s  t    state gather>gather join
   1.000662s  r    state gather>gather join
   1.000662s  r    branch join held back
   1.000664s  t    state gather>gather join
   1.000674s  r    state gather>gather join
   1.000683s  s    state gather>gather join
   1.000684s  p    state gather>gather join
   1.000698s  s    state gather>gather join
   1.000704s  r    state gather>gather join
   1.003179s  q    branch new ring refused by a member
   1.003179s  q    state commit>gather join
   1.003282s  p    state gather>commit consensus
   1.003354s  q    state gather>commit consensus
   1.003461s  r    state gather>commit consensus
   1.003532s  s    state gather>commit consensus
   1.003641s  t    state gather>commit consensus
   1.004770s  p    state commit>recover commit token
   1.004831s  q    state commit>recover commit token
   1.005405s  r    state commit>recover commit token
   1.005492s  s    state commit>recover commit token
   1.005565s  t    state commit>recover commit token
   1.006043s  p    branch promise given
   1.006120s  q    branch promise given
   1.006182s  r    branch promise given
   1.006263s  s    branch promise given
   1.006361s  t    branch promise given
   1.006433s  p    delivered 1 in 16@1 from 1.000000s to 1.000000s: 1 of p
   1.006433s  p    installs [p] transitional 22@1
   1.006433s  p    installs {p q r s t} regular 24@1
   1.006433s  p    state recover>operational ring installed
   1.006513s  q    delivered 1 in 16@2 from 1.000000s to 1.000000s: 1 of q
   1.006513s  q    installs [q] transitional 22@2
   1.006513s  q    installs {p q r s t} regular 24@1
   1.006513s  q    state recover>operational ring installed
   1.006615s  r    delivered 1 in 16@3 from 1.000000s to 1.000000s: 1 of r
   1.006615s  r    installs [r] transitional 22@3
   1.006615s  r    installs {p q r s t} regular 24@1
   1.006615s  r    state recover>operational ring installed
   1.006717s  s    installs [s] transitional 22@4
   1.006717s  s    installs {p q r s t} regular 24@1
   1.006717s  s    state recover>operational ring installed
   1.006801s  t    installs [t] transitional 22@5
   1.006801s  t    installs {p q r s t} regular 24@1
   1.006801s  t    state recover>operational ring installed
