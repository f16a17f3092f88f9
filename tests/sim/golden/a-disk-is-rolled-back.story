   2.000000s  q    fault crash q
   2.000000s  q    crash
   2.015003s  r    branch token retransmitted
   2.015098s  p    branch redundant token
   2.025090s  p    branch token retransmitted
   2.075003s  r    state operational>gather token loss
   2.075095s  p    state operational>gather join
   2.100000s  q    fault restart q
   2.100000s  q    fault disk q rollback 20
   2.100000s  q    starts, incarnation 1
   2.101855s  q    installs {q} regular 4@2
   2.101855s  q    state starting>gather start
   2.101855s  q    state gather>commit consensus
   2.101924s  p    branch join of a former life
   2.101951s  r    branch join of a former life
   2.102295s  q    state commit>recover commit token
   2.102330s  q    branch promise given
   2.102350s  q    installs [q] transitional 6@2
   2.102350s  q    installs {q} regular 8@2
   2.102350s  q    state recover>operational ring installed
   2.105104s  q    state operational>gather join
   2.126503s  r    branch consensus timeout
   2.126503s  r    state gather>gather consensus timeout
   2.126503s  r    branch join held back
   2.130095s  p    branch consensus timeout
   2.130095s  p    state gather>gather consensus timeout
   2.130095s  p    branch join held back
   2.135076s  q    state gather>gather join
   2.135076s  q    branch join held back
   2.135090s  p    state gather>commit consensus
   2.135159s  r    branch join of a former life
   2.135164s  r    state gather>commit consensus
   2.135170s  q    state gather>gather join
   2.135170s  q    branch join held back
   2.135170s  q    state gather>commit consensus
   2.135173s  p    branch join of a former life
   2.135243s  r    branch join of a former life
   2.136211s  q    state commit>recover commit token
   2.136246s  q    branch promise given
   2.136266s  q    installs [q] transitional 10@2
   2.136266s  q    installs {q} regular 12@2
   2.136266s  q    state recover>operational ring installed
   2.136506s  p    state commit>recover commit token
   2.136568s  r    state commit>recover commit token
   2.136868s  p    branch promise given
   2.136951s  r    branch promise given
   2.137056s  p    installs [p r] transitional 38@1
   2.137056s  p    installs {p r} regular 40@1
   2.137056s  p    state recover>operational ring installed
   2.137149s  r    installs [p r] transitional 38@1
   2.137149s  r    installs {p r} regular 40@1
   2.137149s  r    state recover>operational ring installed
