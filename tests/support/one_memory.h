// Collectives of rank threads whose tensors lie in one memory: the host's, or that of one GPU. They
// train groups of any number of ranks where there is one GPU, which NCCL cannot. Each rank reads
// the others' tensors; nothing travels. Sums are made in fp32 in the order of ranks and rounded
// once, as `host` makes them.
//
//   const auto meeting = std::make_shared<OneMemory>(ranks);            // shared by all ranks
//   LH_ASSIGN_OR_RETURN(auto communicator, meeting->Join(member, &device));  // on each rank's
//   thread
//
// On a GPU a call waits on the host for the other ranks' calls, and the queues wait for each other
// by events. No kernel waits, so ranks may share a stream. CUDA graphs cannot record the calls. If
// a call uses another queue than the call before, the caller must make that queue wait for the call
// before.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "base/cuda/device.h"
#include "base/cuda/stream.h"
#include "base/status.h"
#include "transport/collective/communicator.h"
#include "transport/collective/member.h"

namespace longhaul::collective::testing {

class OneMemory : public std::enable_shared_from_this<OneMemory> {
 public:
  // `call_limit`: the longest time that a call waits for the other ranks; then the group ends.
  explicit OneMemory(uint32_t ranks, absl::Duration call_limit = absl::Minutes(5));

  // `device` null: host memory. kInvalidArgument: `member` is of a group of another size.
  StatusOr<std::unique_ptr<Communicator>> Join(std::shared_ptr<Member> member,
                                               const cuda::Device* device);

  // --- For the communicators.
  // A rank's call, for the others until all have met again.
  struct Call {
    const void* in = nullptr;
    std::span<const Block> send;  // of an all-to-all
  };
  // On a rank's queue: its input is complete; it has read the inputs of all.
  struct Events {
    cuda::Event ready, done;
  };
  // Waits until all ranks are here. kAborted: the group has ended. kDeadlineExceeded: a rank did
  // not come, and the group ends.
  Status Meet(Member& member);
  Call& call(uint32_t rank) { return calls_[rank]; }
  // Null in host memory.
  Events* events(uint32_t rank) { return events_[rank].get(); }

 private:
  const absl::Duration call_limit_;
  // The call of each rank. A rank writes its own one, and then waits for the others.
  std::vector<Call> calls_;
  std::vector<std::unique_ptr<Events>>
      events_;  // outlive the communicators that the others wait for
  std::mutex mutex_;
  std::condition_variable came_;
  uint32_t here_ = 0;      // ranks that wait
  uint64_t meetings_ = 0;  // that have taken place
};

}  // namespace longhaul::collective::testing
