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
   0.092222s  q    state gather>commit consensus
   0.092303s  r    state gather>commit consensus
   0.093110s  q    state commit>recover commit token
   0.093979s  r    state commit>recover commit token
   0.094439s  q    installs [q] transitional 10@2
   0.094439s  q    installs {q r} regular 12@2
   0.094439s  q    state recover>operational ring installed
   0.094502s  r    installs [r] transitional 10@3
   0.094502s  r    installs {q r} regular 12@2
   0.094502s  r    state recover>operational ring installed
   0.117098s  p    state commit>gather token loss
   0.117177s  r    state operational>gather join
   0.117200s  q    state operational>gather join
   0.117254s  p    state gather>gather join
   0.117294s  p    state gather>commit consensus
   0.117378s  q    state gather>commit consensus
   0.117486s  r    state gather>commit consensus
   0.117735s  p    state commit>recover commit token
   0.118741s  q    state commit>recover commit token
   0.118834s  r    state commit>recover commit token
   0.119403s  p    installs [p] transitional 14@1
   0.119403s  p    installs {p q r} regular 16@1
   0.119403s  p    state recover>operational ring installed
   0.119506s  q    installs [q r] transitional 14@2
   0.119506s  q    installs {p q r} regular 16@1
   0.119506s  q    state recover>operational ring installed
   0.119599s  r    installs [q r] transitional 14@2
   0.119599s  r    installs {p q r} regular 16@1
   0.119599s  r    state recover>operational ring installed
   0.300000s  -    fault partition (p) (q r)
   0.394401s  q    state operational>gather token loss
   0.394484s  r    state operational>gather token loss
   0.409574s  p    state operational>gather token loss
   0.469401s  q    state gather>gather consensus timeout
   0.469484s  r    state gather>gather consensus timeout
   0.469578s  q    state gather>commit consensus
   0.469644s  r    state gather>commit consensus
   0.471500s  q    state commit>recover commit token
   0.471558s  r    state commit>recover commit token
   0.471978s  q    delivered 10 in 16@1 from 0.200357s to 0.200619s: 10 of p
   0.471978s  q    installs [q r] transitional 18@2
   0.471978s  q    installs {q r} regular 20@2
   0.471978s  q    state recover>operational ring installed
   0.472079s  r    delivered 10 in 16@1 from 0.200460s to 0.200721s: 10 of p
   0.472079s  r    installs [q r] transitional 18@2
   0.472079s  r    installs {q r} regular 20@2
   0.472079s  r    state recover>operational ring installed
   0.484574s  p    state gather>gather consensus timeout
   0.484574s  p    state gather>commit consensus
   0.486142s  p    state commit>recover commit token
   0.486197s  p    delivered 10 in 16@1 from 0.200234s to 0.200531s: 10 of p
   0.486197s  p    installs [p] transitional 18@1
   0.486197s  p    installs {p} regular 20@1
   0.486197s  p    state recover>operational ring installed
   0.700000s  -    fault heal
   0.751242s  q    state operational>gather foreign message
   0.751254s  r    state operational>gather foreign message
   0.751314s  p    state operational>gather join
   0.751331s  p    state gather>commit consensus
   0.751421s  q    state gather>commit consensus
   0.751481s  r    state gather>commit consensus
   0.753113s  p    state commit>recover commit token
   0.753205s  q    state commit>recover commit token
   0.753288s  r    state commit>recover commit token
   0.753811s  p    installs [p] transitional 22@1
   0.753811s  p    installs {p q r} regular 24@1
   0.753811s  p    state recover>operational ring installed
   0.753896s  q    delivered 5 in 20@2 from 0.600000s to 0.600170s: 5 of q
   0.753896s  q    installs [q r] transitional 22@2
   0.753896s  q    installs {p q r} regular 24@1
   0.753896s  q    state recover>operational ring installed
   0.754004s  r    delivered 5 in 20@2 from 0.600090s to 0.600282s: 5 of q
   0.754004s  r    installs [q r] transitional 22@2
   0.754004s  r    installs {p q r} regular 24@1
   0.754004s  r    state recover>operational ring installed
