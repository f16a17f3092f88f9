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
   0.001568s  p    branch promise given
   0.001588s  p    installs [p] transitional 6@1
   0.001588s  p    installs {p} regular 8@1
   0.001588s  p    state recover>operational ring installed
   0.001890s  r    installs {r} regular 4@3
   0.001890s  r    state starting>gather start
   0.001890s  r    state gather>commit consensus
   0.001977s  p    state operational>gather join
   0.001977s  p    branch join held back
   0.002158s  q    state commit>recover commit token
   0.002193s  q    branch promise given
   0.002213s  q    installs [q] transitional 6@2
   0.002213s  q    installs {q} regular 8@2
   0.002213s  q    state recover>operational ring installed
   0.002521s  q    state operational>gather join
   0.002521s  q    branch join held back
   0.002770s  p    state gather>gather join
   0.002770s  p    branch join held back
   0.003774s  r    state commit>recover commit token
   0.003809s  r    branch promise given
   0.003829s  r    installs [r] transitional 6@3
   0.003829s  r    installs {r} regular 8@3
   0.003829s  r    state recover>operational ring installed
   0.004990s  r    state operational>gather join
   0.005046s  p    state gather>commit consensus
   0.005135s  q    state gather>commit consensus
   0.005240s  r    state gather>commit consensus
   0.006232s  p    state commit>recover commit token
   0.006287s  q    state commit>recover commit token
   0.006916s  r    state commit>recover commit token
   0.007229s  p    branch promise given
   0.007339s  q    branch promise given
   0.007441s  r    branch promise given
   0.007538s  p    installs [p] transitional 10@1
   0.007538s  p    installs {p q r} regular 12@1
   0.007538s  p    state recover>operational ring installed
   0.007635s  q    installs [q] transitional 10@2
   0.007635s  q    installs {p q r} regular 12@1
   0.007635s  q    state recover>operational ring installed
   0.007713s  r    installs [r] transitional 10@3
   0.007713s  r    installs {p q r} regular 12@1
   0.007713s  r    state recover>operational ring installed
   0.300000s  -    fault partition (p) (q r)
   0.312747s  q    branch token retransmitted
   0.312810s  r    branch token retransmitted
   0.312818s  r    branch redundant token
   0.322907s  p    branch token retransmitted
   0.332912s  q    branch token handed on
   0.372747s  q    state operational>gather token loss
   0.372810s  r    state operational>gather token loss
   0.382907s  p    state operational>gather token loss
   0.429747s  q    branch consensus timeout
   0.429747s  q    state gather>gather consensus timeout
   0.429747s  q    branch join held back
   0.431310s  r    branch consensus timeout
   0.431310s  r    state gather>gather consensus timeout
   0.431310s  r    branch join held back
   0.432911s  q    state gather>commit consensus
   0.432980s  r    state gather>commit consensus
   0.433907s  p    branch consensus timeout
   0.433907s  p    state gather>gather consensus timeout
   0.433907s  p    branch join held back
   0.433907s  p    state gather>commit consensus
   0.434274s  q    state commit>recover commit token
   0.434348s  p    state commit>recover commit token
   0.434376s  r    state commit>recover commit token
   0.434383s  p    branch promise given
   0.434403s  p    delivered 10 in 12@1 from 0.200260s to 0.200571s: 10 of p
   0.434403s  p    installs [p] transitional 14@1
   0.434403s  p    installs {p} regular 16@1
   0.434403s  p    state recover>operational ring installed
   0.434586s  q    branch promise given
   0.434672s  r    branch promise given
   0.434734s  q    delivered 10 in 12@1 from 0.200395s to 0.200635s: 10 of p
   0.434734s  q    installs [q r] transitional 14@2
   0.434734s  q    installs {q r} regular 16@2
   0.434734s  q    state recover>operational ring installed
   0.434831s  r    delivered 10 in 12@1 from 0.200503s to 0.200719s: 10 of p
   0.434831s  r    installs [q r] transitional 14@2
   0.434831s  r    installs {q r} regular 16@2
   0.434831s  r    state recover>operational ring installed
   0.700000s  -    fault heal
   0.751259s  q    branch idle rings meet
   0.751259s  q    state operational>gather foreign message
   0.751282s  r    branch idle rings meet
   0.751282s  r    state operational>gather foreign message
   0.751343s  p    state operational>gather join
   0.751357s  p    state gather>commit consensus
   0.751431s  q    state gather>commit consensus
   0.751508s  r    state gather>commit consensus
   0.752925s  p    state commit>recover commit token
   0.753353s  q    state commit>recover commit token
   0.753450s  r    state commit>recover commit token
   0.753775s  p    branch promise given
   0.753859s  q    branch promise given
   0.753935s  r    branch promise given
   0.754007s  p    installs [p] transitional 18@1
   0.754007s  p    installs {p q r} regular 20@1
   0.754007s  p    state recover>operational ring installed
   0.754095s  q    delivered 5 in 16@2 from 0.600000s to 0.600133s: 5 of q
   0.754095s  q    installs [q r] transitional 18@2
   0.754095s  q    installs {p q r} regular 20@1
   0.754095s  q    state recover>operational ring installed
   0.754179s  r    delivered 5 in 16@2 from 0.600067s to 0.600245s: 5 of q
   0.754179s  r    installs [q r] transitional 18@2
   0.754179s  r    installs {p q r} regular 20@1
   0.754179s  r    state recover>operational ring installed
