   2.000000s  q    fault crash q
   2.000000s  q    crash
   2.015196s  r    branch token retransmitted
   2.015281s  p    branch redundant token
   2.025270s  p    branch token retransmitted
   2.025371s  r    branch token handed on
   2.075196s  r    state operational>gather token loss
   2.075266s  p    state operational>gather join
   2.100000s  q    fault restart q
   2.100000s  q    fault disk q rollback 20
   2.100000s  q    starts, incarnation 1
   2.101855s  q    installs {q} regular 4@2
   2.101855s  q    state starting>gather start
   2.101855s  q    state gather>commit consensus
   2.101914s  r    branch join of a former life
   2.101943s  p    branch join of a former life
   2.102295s  q    state commit>recover commit token
   2.102330s  q    branch promise given
   2.102350s  q    installs [q] transitional 6@2
   2.102350s  q    installs {q} regular 8@2
   2.102350s  q    state recover>operational ring installed
   2.105259s  q    state operational>gather join
   2.126696s  r    branch consensus timeout
   2.126696s  r    state gather>gather consensus timeout
   2.126696s  r    branch join held back
   2.130266s  p    branch consensus timeout
   2.130266s  p    state gather>gather consensus timeout
   2.130266s  p    branch join held back
   2.135271s  p    state gather>commit consensus
   2.135275s  q    state gather>gather join
   2.135275s  q    branch join held back
   2.135328s  q    state gather>gather join
   2.135328s  q    state gather>commit consensus
   2.135334s  r    branch join of a former life
   2.135351s  p    branch join of a former life
   2.135361s  r    state gather>commit consensus
   2.135404s  r    branch join of a former life
   2.136369s  q    state commit>recover commit token
   2.136404s  q    branch promise given
   2.136424s  q    installs [q] transitional 10@2
   2.136424s  q    installs {q} regular 12@2
   2.136424s  q    state recover>operational ring installed
   2.136687s  p    state commit>recover commit token
   2.136753s  r    state commit>recover commit token
   2.137016s  p    branch promise given
   2.137092s  r    branch promise given
   2.137202s  p    installs [p r] transitional 38@1
   2.137202s  p    installs {p r} regular 40@1
   2.137202s  p    state recover>operational ring installed
   2.137283s  r    installs [p r] transitional 38@1
   2.137283s  r    installs {p r} regular 40@1
   2.137283s  r    state recover>operational ring installed
