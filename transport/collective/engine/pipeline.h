// A large collective in pieces, so that one piece travels while another one is encoded or decoded:
// work on the caller's queue and on a second one, the wire, in an order that keeps both busy.
//
//   pipeline.Run(pieces, {{.lag = 0, .wire = false, .run = encode},
//                         {.lag = 0, .wire = true, .run = exchange},
//                         {.lag = 1, .wire = false, .run = decode}}, queue);
//
// At tick t every step runs for piece t - lag, in the order given; a step of a piece starts when
// the step before it has ended for that piece. So piece p + 1 is on its way when piece p is
// decoded. Steps of pieces p and p + 2 never overlap where the last lag is 1 or 2 and every step
// with the largest lag is on the caller's queue: two places for whatever pieces need.
//
// With one piece, or host memory, all runs on the caller's queue. May be recorded in a graph: the
// wire's work begins after and ends before the queue's.
#ifndef LONGHAUL_TRANSPORT_COLLECTIVE_ENGINE_PIPELINE_H_
#define LONGHAUL_TRANSPORT_COLLECTIVE_ENGINE_PIPELINE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/cuda/stream.h"
#include "base/status.h"
#include "transport/collective/communicator.h"

namespace longhaul::collective {

struct Step {
  uint64_t lag = 0;
  bool wire = false;
  std::function<Status(uint64_t piece, Queue queue)> run;
};

class Pipeline {
 public:
  // `device` null: host memory.
  static StatusOr<Pipeline> Create(const cuda::Device* device);

  Status Run(uint64_t pieces, std::span<const Step> steps, Queue queue);

  // For what nothing of the collective waits for, and what would hold up the launch of that which
  // all wait for: Beside runs `work` on a third queue, after what `queue` had when Fork was called.
  // Join, before the collective ends, makes `queue` wait for it. In host memory it runs at once.
  Status Fork(Queue queue);
  Status Beside(Queue queue, const std::function<Status(Queue queue)>& work);
  Status Join(Queue queue);

 private:
  struct Device {
    cuda::Stream wire, side;
    std::vector<cuda::Event> events;  // kPlaces for each step
    cuda::Event forked, joined;       // of the side queue
  };
  static constexpr size_t kMostSteps = 8, kPlaces = 3;
  explicit Pipeline(std::optional<Device> device) : device_(std::move(device)) {}
  Status RunStep(std::span<const Step> steps, size_t step, uint64_t piece, Queue queue);
  // `waiting` goes on when `recorded` has done what it has now.
  static Status Order(const cuda::Device& device, Queue recorded, const cuda::Event& event,
                      Queue waiting);

  std::optional<Device> device_;
};

}  // namespace longhaul::collective

#endif  // LONGHAUL_TRANSPORT_COLLECTIVE_ENGINE_PIPELINE_H_
