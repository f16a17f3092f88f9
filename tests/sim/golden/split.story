   0.000447s  p    starts, incarnation 1
   0.000585s  q    starts, incarnation 1
   0.000761s  r    starts, incarnation 1
   0.001179s  p    installs {p} regular 4@1
   0.001179s  p    state starting>gather start
   0.001179s  p    state gather>commit consensus
   0.001434s  q    installs {q} regular 4@2
   0.001434s  q    state starting>gather start
   0.001434s  q    state gather>commit consensus
   0.001551s  p    state commit>recover commit token
   0.001606s  p    installs [p] transitional 6@1
   0.001606s  p    installs {p} regular 8@1
   0.001606s  p    state recover>operational ring installed
   0.001890s  r    installs {r} regular 4@3
   0.001890s  r    state starting>gather start
   0.001890s  r    state gather>commit consensus
   0.001977s  p    state operational>gather join
   0.002176s  q    state commit>recover commit token
   0.002231s  q    installs [q] transitional 6@2
   0.002231s  q    installs {q} regular 8@2
   0.002231s  q    state recover>operational ring installed
   0.003792s  r    state commit>recover commit token
   0.003847s  r    installs [r] transitional 6@3
   0.003847s  r    installs {r} regular 8@3
   0.003847s  r    state recover>operational ring installed
   0.017041s  r    state operational>gather join
   0.017063s  q    state operational>gather join
   0.017098s  p    state gather>commit consensus
   0.017145s  r    state gather>gather join
   0.092063s  q    state gather>gather consensus timeout
   0.092125s  r    state gather>gather join
   0.092206s  q    state gather>commit consensus
   0.092270s  r    state gather>commit consensus
   0.093234s  q    state commit>recover commit token
   0.094989s  r    state commit>recover commit token
   0.095428s  q    installs [q] transitional 10@2
   0.095428s  q    installs {q r} regular 12@2
   0.095428s  q    state recover>operational ring installed
   0.095519s  r    installs [r] transitional 10@3
   0.095519s  r    installs {q r} regular 12@2
   0.095519s  r    state recover>operational ring installed
   0.117103s  p    state commit>gather token loss
   0.117182s  q    state operational>gather join
   0.117207s  r    state operational>gather join
   0.117272s  p    state gather>gather join
   0.117305s  p    state gather>commit consensus
   0.117408s  q    state gather>commit consensus
   0.117497s  r    state gather>commit consensus
   0.118770s  p    state commit>recover commit token
   0.120226s  q    state commit>recover commit token
   0.120618s  r    state commit>recover commit token
   0.121209s  p    installs [p] transitional 14@1
   0.121209s  p    installs {p q r} regular 16@1
   0.121209s  p    state recover>operational ring installed
   0.121302s  q    installs [q r] transitional 14@2
   0.121302s  q    installs {p q r} regular 16@1
   0.121302s  q    state recover>operational ring installed
   0.121378s  r    installs [q r] transitional 14@2
   0.121378s  r    installs {p q r} regular 16@1
   0.121378s  r    state recover>operational ring installed
   0.300000s  -    fault partition (p) (q r)
   0.394383s  q    state operational>gather token loss
   0.394468s  r    state operational>gather token loss
   0.409554s  p    state operational>gather token loss
   0.469383s  q    state gather>gather consensus timeout
   0.469449s  r    state gather>gather join
   0.469504s  q    state gather>commit consensus
   0.469562s  r    state gather>commit consensus
   0.471583s  q    state commit>recover commit token
   0.473409s  r    state commit>recover commit token
   0.473837s  q    delivered 10 in 16@1 from 0.200354s to 0.200615s: 10 of p
   0.473837s  q    installs [q r] transitional 18@2
   0.473837s  q    installs {q r} regular 20@2
   0.473837s  q    state recover>operational ring installed
   0.473897s  r    delivered 10 in 16@1 from 0.200425s to 0.200703s: 10 of p
   0.473897s  r    installs [q r] transitional 18@2
   0.473897s  r    installs {q r} regular 20@2
   0.473897s  r    state recover>operational ring installed
   0.484554s  p    state gather>gather consensus timeout
   0.484554s  p    state gather>commit consensus
   0.485013s  p    state commit>recover commit token
   0.485068s  p    delivered 10 in 16@1 from 0.200222s to 0.200513s: 10 of p
   0.485068s  p    installs [p] transitional 18@1
   0.485068s  p    installs {p} regular 20@1
   0.485068s  p    state recover>operational ring installed
   0.700000s  -    fault heal
   0.751268s  q    state operational>gather foreign message
   0.751277s  r    state operational>gather foreign message
   0.751328s  p    state operational>gather join
   0.751381s  p    state gather>commit consensus
   0.751445s  q    state gather>commit consensus
   0.751542s  r    state gather>commit consensus
   0.753193s  p    state commit>recover commit token
   0.754364s  q    state commit>recover commit token
   0.755573s  r    state commit>recover commit token
   0.756095s  p    installs [p] transitional 22@1
   0.756095s  p    installs {p q r} regular 24@1
   0.756095s  p    state recover>operational ring installed
   0.756166s  q    delivered 5 in 20@2 from 0.600000s to 0.600180s: 5 of q
   0.756166s  q    installs [q r] transitional 22@2
   0.756166s  q    installs {p q r} regular 24@1
   0.756166s  q    state recover>operational ring installed
   0.756240s  r    delivered 5 in 20@2 from 0.600072s to 0.600290s: 5 of q
   0.756240s  r    installs [q r] transitional 22@2
   0.756240s  r    installs {p q r} regular 24@1
   0.756240s  r    state recover>operational ring installed
