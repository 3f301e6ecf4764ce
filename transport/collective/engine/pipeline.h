// Runs a large collective in pieces, so that one piece travels while another is encoded or decoded.
// Keeps two queues busy: the caller's queue, and a second one called the wire, for the exchanges.
//
//   pipeline.Run(pieces, {{.lag = 0, .wire = false, .run = encode},
//                         {.lag = 0, .wire = true, .run = exchange},
//                         {.lag = 1, .wire = false, .run = decode}}, queue);
//
// Time goes in ticks. At tick t every step is queued for piece t - lag, in the given order. A step
// of a piece starts when the piece's previous step has ended. So piece p + 1 travels while piece p
// is decoded. Two buffers, used by pieces in turn, are enough if the largest lag is 1 or 2 and
// every step with this lag is on the caller's queue: steps of pieces p and p + 2 then never
// overlap.
//
// If there is only one piece, or if the tensors are in host memory, all steps run on the caller's
// queue. A CUDA graph can record the whole pipeline, because the two queues are joined: the wire's
// queue starts after the earlier work of the caller's queue, and the caller's queue waits for the
// wire's queue at the end.
#pragma once

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
  uint64_t lag = 0;   // ticks
  bool wire = false;  // true: runs on the wire; false: on the caller's queue
  std::function<Status(uint64_t piece, Queue queue)> run;
};

class Pipeline {
 public:
  // `device` null: host memory. The device is used only during the call.
  static StatusOr<Pipeline> Create(const cuda::Device* device);

  // Queues all steps of all pieces, at most 8 steps for a piece. Returns the first error of a step,
  // or kInternal if CUDA fails; then later steps are not queued.
  Status Run(uint64_t pieces, std::span<const Step> steps, Queue queue);

  // Fork, Beside and Join are for work that no step needs. On the caller's queue such work would
  // delay the exchanges, for which all ranks wait. Beside runs `work` on a third queue, after
  // everything that `queue` had at Fork. Join makes `queue` wait for the third queue; call it
  // before the collective ends. In host memory `work` runs at once.
  Status Fork(Queue queue);
  Status Beside(Queue queue, const std::function<Status(Queue queue)>& work);
  Status Join(Queue queue);

 private:
  struct Device {
    cuda::Stream wire, side;
    std::vector<cuda::Event> events;  // kPlaces for each step
    cuda::Event forked, joined;       // of the third queue
  };
  static constexpr size_t kMostSteps = 8, kPlaces = 3;
  explicit Pipeline(std::optional<Device> device) : device_(std::move(device)) {}
  Status RunStep(std::span<const Step> steps, size_t step, uint64_t piece, Queue queue);
  // Makes `waiting` wait for all work that is now on `recorded`, by means of `event`.
  static Status Order(const cuda::Device& device, Queue recorded, const cuda::Event& event,
                      Queue waiting);

  std::optional<Device> device_;
};

}  // namespace longhaul::collective
