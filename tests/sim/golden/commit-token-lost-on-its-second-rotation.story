   1.000000s  -    fault ambush at 'commit>recover'
   1.000000s  -    fault ambush at 'recover>gather'
   1.000000s  s    fault crash s
   1.000000s  s    crash
   1.019913s  p    branch token retransmitted
   1.019969s  q    branch token retransmitted
   1.020010s  q    branch redundant token
   1.020035s  r    branch token retransmitted
   1.020043s  r    branch redundant token
   1.020119s  q    branch token handed on
   1.040053s  p    branch token handed on
   1.059921s  p    state operational>gather token loss
   1.059977s  q    state operational>gather token loss
   1.059986s  r    state operational>gather join
   1.112477s  q    branch consensus timeout
   1.112477s  q    state gather>gather consensus timeout
   1.112477s  q    branch join held back
   1.115921s  p    branch consensus timeout
   1.115921s  p    state gather>gather consensus timeout
   1.115921s  p    branch join held back
   1.118486s  r    branch consensus timeout
   1.118486s  r    state gather>gather consensus timeout
   1.118486s  r    branch join held back
   1.120064s  p    state gather>commit consensus
   1.120130s  q    state gather>commit consensus
   1.120230s  r    state gather>commit consensus
   1.120338s  p    state commit>recover commit token
   1.120338s  -    fault drop-next commit-token from q count=99
   1.121816s  q    state commit>recover commit token
   1.121816s  -    fault dropped commit-token from q
   1.140230s  r    branch token retransmitted
   1.140296s  p    branch redundant commit token
   1.140338s  p    branch token retransmitted
   1.140428s  q    branch redundant commit token
   1.141816s  q    branch token retransmitted
   1.141816s  -    fault dropped commit-token from q
   1.161816s  -    fault dropped commit-token from q
   1.180343s  p    branch recovery failed
   1.180343s  p    branch commit token lost on its second rotation
   1.180343s  p    state recover>gather token loss
   1.180343s  -    fault heal
   1.180401s  r    branch new ring given up by a member
   1.180401s  r    state commit>gather join
   1.180438s  q    branch new ring given up by a member
   1.180438s  q    state recover>gather join
   1.180524s  p    state gather>commit consensus
   1.180593s  q    state gather>commit consensus
   1.180691s  r    state gather>commit consensus
   1.182012s  p    state commit>recover commit token
   1.182111s  q    state commit>recover commit token
   1.182635s  r    state commit>recover commit token
   1.182984s  p    branch promise given
   1.183087s  q    branch promise given
   1.183163s  r    branch promise given
   1.183263s  p    installs [p q r] transitional 18@1
   1.183263s  p    installs {p q r} regular 20@1
   1.183263s  p    state recover>operational ring installed
   1.183361s  q    installs [p q r] transitional 18@1
   1.183361s  q    installs {p q r} regular 20@1
   1.183361s  q    state recover>operational ring installed
   1.183471s  r    installs [p q r] transitional 18@1
   1.183471s  r    installs {p q r} regular 20@1
   1.183471s  r    state recover>operational ring installed
