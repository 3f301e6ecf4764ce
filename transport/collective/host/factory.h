// Collectives in host memory over Unix sockets, for groups of CPU ranks: threads of one process, or
// processes of one machine.
//
// Sums are computed in fp32, in the order of ranks, and rounded once. So every rank gets the same
// bits, whatever the timing.
#pragma once

#include <memory>

#include "absl/time/time.h"
#include "transport/collective/communicator.h"
#include "transport/collective/member.h"

namespace longhaul::collective::host {

struct Options {
  // A call that waits longer than this for other ranks ends the group.
  absl::Duration call_limit = absl::Minutes(5);
};

// All ranks call Create. Blocks until all ranks are connected. After an error, usually kAborted,
// the group has ended. The communicator sets the member's OnEnd.
StatusOr<std::unique_ptr<Communicator>> Create(std::shared_ptr<Member> member,
                                               const Options& options, Deadline deadline);

}  // namespace longhaul::collective::host
