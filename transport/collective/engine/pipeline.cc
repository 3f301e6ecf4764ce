#include "transport/collective/engine/pipeline.h"

#include <algorithm>

#include "base/check.h"

namespace longhaul::collective {

StatusOr<Pipeline> Pipeline::Create(const cuda::Device* device) {
  if (device == nullptr) return Pipeline(std::nullopt);
  LH_ASSIGN_OR_RETURN(cuda::Stream wire, cuda::Stream::Create(*device));
  LH_ASSIGN_OR_RETURN(cuda::Stream side, cuda::Stream::Create(*device));
  LH_ASSIGN_OR_RETURN(cuda::Event forked, cuda::Event::Create(*device));
  LH_ASSIGN_OR_RETURN(cuda::Event joined, cuda::Event::Create(*device));
  std::vector<cuda::Event> events;
  for (size_t k = 0; k < kMostSteps * kPlaces; ++k) {
    LH_ASSIGN_OR_RETURN(cuda::Event event, cuda::Event::Create(*device));
    events.push_back(std::move(event));
  }
  return Pipeline(Device{std::move(wire), std::move(side), std::move(events), std::move(forked),
                         std::move(joined)});
}

Status Pipeline::Run(uint64_t pieces, std::span<const Step> steps, Queue queue) {
  LH_CHECK(steps.size() <= kMostSteps, "{} steps", steps.size());
  if (!device_.has_value() || pieces == 1) {
    for (uint64_t piece = 0; piece < pieces; ++piece) {
      for (const Step& step : steps) LH_RETURN_IF_ERROR(step.run(piece, queue));
    }
    return absl::OkStatus();
  }
  uint64_t last = 0;
  for (const Step& step : steps) last = std::max(last, step.lag);
  for (uint64_t tick = 0; tick < pieces + last; ++tick) {
    for (size_t step = 0; step < steps.size(); ++step) {
      if (tick < steps[step].lag || tick - steps[step].lag >= pieces) continue;
      LH_RETURN_IF_ERROR(RunStep(steps, step, tick - steps[step].lag, queue));
    }
  }
  return absl::OkStatus();
}

Status Pipeline::Order(const cuda::Device& device, Queue recorded, const cuda::Event& event,
                       Queue waiting) {
  LH_RETURN_IF_ERROR(device.Check(device.table().event_record(event.handle(), recorded.stream),
                                  "recording an event"));
  return device.Check(device.table().stream_wait(waiting.stream, event.handle()),
                      "making a queue wait for the other");
}

Status Pipeline::Fork(Queue queue) {
  if (!device_.has_value()) return absl::OkStatus();
  return Order(device_->side.device(), queue, device_->forked, {device_->side.handle()});
}

Status Pipeline::Beside(Queue queue, const std::function<Status(Queue queue)>& work) {
  return work(device_.has_value() ? Queue{device_->side.handle()} : queue);
}

Status Pipeline::Join(Queue queue) {
  if (!device_.has_value()) return absl::OkStatus();
  return Order(device_->side.device(), {device_->side.handle()}, device_->joined, queue);
}

Status Pipeline::RunStep(std::span<const Step> steps, size_t step, uint64_t piece, Queue queue) {
  const cuda::Device& device = device_->wire.device();
  const auto event_of = [&](size_t which) {
    return device_->events[which * kPlaces + piece % kPlaces].handle();
  };
  const Queue own = steps[step].wire ? Queue{device_->wire.handle()} : queue;
  if (step > 0 && steps[step - 1].wire != steps[step].wire) {
    LH_RETURN_IF_ERROR(device.Check(device.table().stream_wait(own.stream, event_of(step - 1)),
                                    "making a queue wait for the other"));
  }
  LH_RETURN_IF_ERROR(steps[step].run(piece, own));
  if (step + 1 < steps.size() && steps[step + 1].wire != steps[step].wire) {
    LH_RETURN_IF_ERROR(device.Check(device.table().event_record(event_of(step), own.stream),
                                    "recording an event"));
  }
  return absl::OkStatus();
}

}  // namespace longhaul::collective
