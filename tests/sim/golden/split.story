   0.000447s  p    starts, incarnation 1
   0.000585s  q    starts, incarnation 1
   0.000761s  r    starts, incarnation 1
   0.001179s  p    installs {p} regular 4@1
   0.001179s  p    state starting>gather start
   0.001179s  p    state gather>commit consensus
   0.001434s  q    installs {q} regular 4@2
   0.001434s  q    state starting>gather start
   0.001434s  q    state gather>commit consensus
   0.001533s  p    state commit>recover commit token
   0.001588s  p    installs [p] transitional 6@1
   0.001588s  p    installs {p} regular 8@1
   0.001588s  p    state recover>operational ring installed
   0.001890s  r    installs {r} regular 4@3
   0.001890s  r    state starting>gather start
   0.001890s  r    state gather>commit consensus
   0.001977s  p    state operational>gather join
   0.002158s  q    state commit>recover commit token
   0.002213s  q    installs [q] transitional 6@2
   0.002213s  q    installs {q} regular 8@2
   0.002213s  q    state recover>operational ring installed
   0.003774s  r    state commit>recover commit token
   0.003829s  r    installs [r] transitional 6@3
   0.003829s  r    installs {r} regular 8@3
   0.003829s  r    state recover>operational ring installed
   0.017041s  r    state operational>gather join
   0.017063s  q    state operational>gather join
   0.017098s  p    state gather>commit consensus
   0.017145s  r    state gather>gather join
   0.092063s  q    state gather>gather consensus timeout
   0.092125s  r    state gather>gather join
   0.092206s  q    state gather>commit consensus
   0.092270s  r    state gather>commit consensus
   0.093094s  q    state commit>recover commit token
   0.093946s  r    state commit>recover commit token
   0.094385s  q    installs [q] transitional 10@2
   0.094385s  q    installs {q r} regular 12@2
   0.094385s  q    state recover>operational ring installed
   0.094476s  r    installs [r] transitional 10@3
   0.094476s  r    installs {q r} regular 12@2
   0.094476s  r    state recover>operational ring installed
   0.117103s  p    state commit>gather token loss
   0.117182s  q    state operational>gather join
   0.117207s  r    state operational>gather join
   0.117272s  p    state gather>gather join
   0.117305s  p    state gather>commit consensus
   0.117408s  q    state gather>commit consensus
   0.117497s  r    state gather>commit consensus
   0.117746s  p    state commit>recover commit token
   0.118771s  q    state commit>recover commit token
   0.118842s  r    state commit>recover commit token
   0.119438s  p    installs [p] transitional 14@1
   0.119438s  p    installs {p q r} regular 16@1
   0.119438s  p    state recover>operational ring installed
   0.119531s  q    installs [q r] transitional 14@2
   0.119531s  q    installs {p q r} regular 16@1
   0.119531s  q    state recover>operational ring installed
   0.119607s  r    installs [q r] transitional 14@2
   0.119607s  r    installs {p q r} regular 16@1
   0.119607s  r    state recover>operational ring installed
   0.300000s  -    fault partition (p) (q r)
   0.394383s  q    state operational>gather token loss
   0.394468s  r    state operational>gather token loss
   0.409554s  p    state operational>gather token loss
   0.469383s  q    state gather>gather consensus timeout
   0.469449s  r    state gather>gather join
   0.469504s  q    state gather>commit consensus
   0.469562s  r    state gather>commit consensus
   0.471426s  q    state commit>recover commit token
   0.471507s  r    state commit>recover commit token
   0.471940s  q    delivered 10 in 16@1 from 0.200354s to 0.200615s: 10 of p
   0.471940s  q    installs [q r] transitional 18@2
   0.471940s  q    installs {q r} regular 20@2
   0.471940s  q    state recover>operational ring installed
   0.472000s  r    delivered 10 in 16@1 from 0.200425s to 0.200703s: 10 of p
   0.472000s  r    installs [q r] transitional 18@2
   0.472000s  r    installs {q r} regular 20@2
   0.472000s  r    state recover>operational ring installed
   0.484554s  p    state gather>gather consensus timeout
   0.484554s  p    state gather>commit consensus
   0.486122s  p    state commit>recover commit token
   0.486177s  p    delivered 10 in 16@1 from 0.200222s to 0.200513s: 10 of p
   0.486177s  p    installs [p] transitional 18@1
   0.486177s  p    installs {p} regular 20@1
   0.486177s  p    state recover>operational ring installed
   0.700000s  -    fault heal
   0.751268s  q    state operational>gather foreign message
   0.751277s  r    state operational>gather foreign message
   0.751328s  p    state operational>gather join
   0.751381s  p    state gather>commit consensus
   0.751445s  q    state gather>commit consensus
   0.751542s  r    state gather>commit consensus
   0.753163s  p    state commit>recover commit token
   0.753255s  q    state commit>recover commit token
   0.753347s  r    state commit>recover commit token
   0.753874s  p    installs [p] transitional 22@1
   0.753874s  p    installs {p q r} regular 24@1
   0.753874s  p    state recover>operational ring installed
   0.753945s  q    delivered 5 in 20@2 from 0.600000s to 0.600180s: 5 of q
   0.753945s  q    installs [q r] transitional 22@2
   0.753945s  q    installs {p q r} regular 24@1
   0.753945s  q    state recover>operational ring installed
   0.754019s  r    delivered 5 in 20@2 from 0.600072s to 0.600290s: 5 of q
   0.754019s  r    installs [q r] transitional 22@2
   0.754019s  r    installs {p q r} regular 24@1
   0.754019s  r    state recover>operational ring installed
