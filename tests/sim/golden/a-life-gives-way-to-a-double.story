   1.000000s  r    fault crash r
   1.000000s  r    crash
   1.020618s  p    branch token retransmitted
   1.020674s  q    branch token retransmitted
   1.020685s  q    branch redundant token
   1.040752s  p    branch token handed on
   1.060618s  p    state operational>gather token loss
   1.060674s  q    state operational>gather token loss
   1.100000s  r    fault double r
   1.100000s  r    starts, incarnation 1101
   1.116618s  p    branch consensus timeout
   1.116618s  p    state gather>gather consensus timeout
   1.116618s  p    branch join held back
   1.118174s  q    branch consensus timeout
   1.118174s  q    state gather>gather consensus timeout
   1.118174s  q    branch join held back
   1.120748s  p    state gather>commit consensus
   1.120841s  q    state gather>commit consensus
   1.120982s  p    state commit>recover commit token
   1.122527s  q    state commit>recover commit token
   1.122717s  p    branch promise given
   1.122794s  q    branch promise given
   1.122898s  p    installs [p q] transitional 14@1
   1.122898s  p    installs {p q} regular 16@1
   1.122898s  p    state recover>operational ring installed
   1.122958s  q    installs [p q] transitional 14@1
   1.122958s  q    installs {p q} regular 16@1
   1.122958s  q    state recover>operational ring installed
   1.401461s  r    installs {r} regular 281604@3
   1.401461s  r    state starting>gather start
   1.401461s  r    state gather>commit consensus
   1.401540s  p    state operational>gather join
   1.401542s  q    state operational>gather join
   1.402137s  r    state commit>recover commit token
   1.402172s  r    branch promise given
   1.402192s  r    installs [r] transitional 281606@3
   1.402192s  r    installs {r} regular 281608@3
   1.402192s  r    state recover>operational ring installed
   1.411605s  r    state operational>gather join
   1.411691s  p    state gather>commit consensus
   1.411775s  q    state gather>commit consensus
   1.411877s  r    state gather>commit consensus
   1.413179s  p    state commit>recover commit token
   1.413280s  q    state commit>recover commit token
   1.413351s  r    state commit>recover commit token
   1.414285s  p    branch promise given
   1.414381s  q    branch promise given
   1.414468s  r    branch promise given
   1.414533s  p    installs [p q] transitional 281610@1
   1.414533s  p    installs {p q r} regular 281612@1
   1.414533s  p    state recover>operational ring installed
   1.414629s  q    installs [p q] transitional 281610@1
   1.414629s  q    installs {p q r} regular 281612@1
   1.414629s  q    state recover>operational ring installed
   1.414702s  r    installs [r] transitional 281610@3
   1.414702s  r    installs {p q r} regular 281612@1
   1.414702s  r    state recover>operational ring installed
   2.500000s  r    fault restart r
   2.500000s  r    starts, incarnation 2
   2.500849s  r    installs {r} regular 16@3
   2.500849s  r    state starting>gather start
   2.500849s  r    state gather>commit consensus
   2.500941s  q    branch join of a former life
   2.500950s  p    branch join of a former life
   2.502793s  r    state commit>recover commit token
   2.502828s  r    branch promise given
   2.502848s  r    installs [r] transitional 18@3
   2.502848s  r    installs {r} regular 20@3
   2.502848s  r    state recover>operational ring installed
   2.651523s  r    branch gave way to another of its number
   2.651523s  r    crash
