#include "run/schedule/fluid_network.h"

#include <algorithm>
#include <cmath>

#include "run/schedule/simulator.h"

namespace longhaul::schedule {

FluidNetwork::FluidNetwork(const PipelineCost& cost) : shared_efficiency_(cost.shared_efficiency) {
  for (const StageCost& stage : cost.stages) {
    egress_.push_back({.bytes_per_second = stage.egress_bytes_per_second});
    ingress_.push_back({.bytes_per_second = stage.ingress_bytes_per_second});
  }
  for (uint32_t b = 0; b < cost.boundaries.size(); ++b) {
    const BoundaryCost& boundary = cost.boundaries[b];
    flows_.push_back({.sender = b, .receiver = b + 1, .cap = boundary.forward_bytes_per_second});
    flows_.push_back({.sender = b + 1, .receiver = b, .cap = boundary.backward_bytes_per_second});
  }
  ends_.assign(flows_.size(), kNever);
  open_.reserve(flows_.size());
}

void FluidNetwork::Start(uint32_t link, double bytes, double now) {
  Flow& flow = flows_[link];
  flow.busy = true;
  flow.remaining_bytes = bytes;
  flow.since = now;
  flow.rate = 0;
  changed_ = true;
}

void FluidNetwork::End(uint32_t link) {
  flows_[link].busy = false;
  ends_[link] = kNever;
  changed_ = true;
}

void FluidNetwork::SetRate(uint32_t link, double rate, double now) {
  Flow& flow = flows_[link];
  if (rate == flow.rate) return;
  if (flow.rate > 0) {
    flow.remaining_bytes = std::max(0.0, flow.remaining_bytes - flow.rate * (now - flow.since));
  }
  flow.rate = rate;
  flow.since = now;
  ends_[link] = now + (flow.remaining_bytes > 0 ? flow.remaining_bytes / rate : 0);
}

// Progressive filling: who has the least for each of its transfers gives them that, until all have
// a share.
void FluidNetwork::Share(double now) {
  if (!changed_) return;
  changed_ = false;
  for (size_t s = 0; s < egress_.size(); ++s) egress_[s].open = ingress_[s].open = 0;
  open_.clear();
  for (uint32_t link = 0; link < flows_.size(); ++link) {
    const Flow& flow = flows_[link];
    if (!flow.busy) continue;
    open_.push_back(link);
    ++egress_[flow.sender].open;
    ++ingress_[flow.receiver].open;
  }
  for (size_t s = 0; s < egress_.size(); ++s) {
    for (Interface* interface : {&egress_[s], &ingress_[s]}) {
      interface->left =
          interface->bytes_per_second * (interface->open > 1 ? shared_efficiency_ : 1);
    }
  }
  const auto most = [this](uint32_t link) {
    const Flow& flow = flows_[link];
    return std::min({flow.cap, egress_[flow.sender].each(), ingress_[flow.receiver].each()});
  };
  while (!open_.empty()) {
    double share = kNever;
    for (const uint32_t link : open_) share = std::min(share, most(link));
    // Who gets it is settled before anything is taken, so that the order of links does not matter.
    const auto settled = std::partition(open_.begin(), open_.end(), [&](uint32_t link) {
      return share != kNever && most(link) > share * (1 + 1e-12);
    });
    for (auto it = settled; it != open_.end(); ++it) {
      const Flow& flow = flows_[*it];
      SetRate(*it, share, now);
      for (Interface* interface : {&egress_[flow.sender], &ingress_[flow.receiver]}) {
        --interface->open;
        if (share != kNever) interface->left = std::max(0.0, interface->left - share);
      }
    }
    open_.erase(settled, open_.end());
  }
}

}  // namespace longhaul::schedule
