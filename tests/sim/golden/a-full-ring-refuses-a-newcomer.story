   1.000000s  s    fault restart s
   1.000000s  s    starts, incarnation 1
   1.000542s  s    installs {s} regular 4@4
   1.000542s  s    state starting>gather start
   1.000542s  s    state gather>commit consensus
   1.000606s  p    branch no room on the ring
   1.000609s  q    branch no room on the ring
   1.000645s  r    branch no room on the ring
   1.002215s  s    state commit>recover commit token
   1.002250s  s    branch promise given
   1.002270s  s    installs [s] transitional 6@4
   1.002270s  s    installs {s} regular 8@4
   1.002270s  s    state recover>operational ring installed
   1.250606s  s    branch idle rings meet
   1.250606s  s    state operational>gather foreign message
   1.250753s  s    branch no room on the ring
   1.250753s  s    state gather>gather join
   1.250753s  s    branch join held back
   1.250753s  s    state gather>commit consensus
   1.252631s  s    state commit>recover commit token
   1.252666s  s    branch promise given
   1.252686s  s    installs [s] transitional 10@4
   1.252686s  s    installs {s} regular 12@4
   1.252686s  s    state recover>operational ring installed
