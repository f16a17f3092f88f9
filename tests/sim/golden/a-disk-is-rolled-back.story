   2.000000s  q    fault crash q
   2.000000s  q    crash
   2.015090s  r    branch token retransmitted
   2.015159s  p    branch redundant token
   2.025189s  p    branch token retransmitted
   2.045264s  r    branch token handed on
   2.075090s  r    state operational>gather token loss
   2.075175s  p    state operational>gather join
   2.100000s  q    fault restart q
   2.100000s  q    fault disk q rollback 20
   2.100000s  q    starts, incarnation 1
   2.101855s  q    installs {q} regular 4@2
   2.101855s  q    state starting>gather start
   2.101855s  q    state gather>commit consensus
   2.101948s  r    branch join of a former life
   2.101950s  p    branch join of a former life
   2.102295s  q    state commit>recover commit token
   2.102330s  q    branch promise given
   2.102350s  q    installs [q] transitional 6@2
   2.102350s  q    installs {q} regular 8@2
   2.102350s  q    state recover>operational ring installed
   2.105152s  q    state operational>gather join
   2.126590s  r    branch consensus timeout
   2.126590s  r    state gather>gather consensus timeout
   2.126590s  r    branch join held back
   2.130175s  p    branch consensus timeout
   2.130175s  p    state gather>gather consensus timeout
   2.130175s  p    branch join held back
   2.135186s  q    state gather>gather join
   2.135186s  q    branch join held back
   2.135195s  p    state gather>commit consensus
   2.135225s  p    branch join of a former life
   2.135254s  r    branch join of a former life
   2.135256s  q    state gather>gather join
   2.135256s  q    state gather>commit consensus
   2.135259s  r    state gather>commit consensus
   2.135339s  r    branch join of a former life
   2.136297s  q    state commit>recover commit token
   2.136332s  q    branch promise given
   2.136352s  q    installs [q] transitional 10@2
   2.136352s  q    installs {q} regular 12@2
   2.136352s  q    state recover>operational ring installed
   2.136611s  p    state commit>recover commit token
   2.136690s  r    state commit>recover commit token
   2.136934s  p    branch promise given
   2.137031s  r    branch promise given
   2.137111s  p    installs [p r] transitional 38@1
   2.137111s  p    installs {p r} regular 40@1
   2.137111s  p    state recover>operational ring installed
   2.137187s  r    installs [p r] transitional 38@1
   2.137187s  r    installs {p r} regular 40@1
   2.137187s  r    state recover>operational ring installed
