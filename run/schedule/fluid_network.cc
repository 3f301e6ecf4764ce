#include "run/schedule/fluid_network.h"

#include <algorithm>
#include <cmath>

#include "run/plan/chain.h"
#include "run/schedule/simulator.h"

namespace longhaul::schedule {

FluidNetwork::FluidNetwork(const PipelineCost& cost) : shared_efficiency_(cost.shared_efficiency) {
  for (const StageCost& stage : cost.stages) {
    egress_.push_back({.bytes_per_second = stage.egress_bytes_per_second});
    ingress_.push_back({.bytes_per_second = stage.ingress_bytes_per_second});
  }
  const auto add = [this](uint32_t upper, uint32_t lower, const BoundaryCost& boundary) {
    transfers_.push_back(
        {.sender = upper, .receiver = lower, .cap = boundary.forward.bytes_per_second});
    transfers_.push_back(
        {.sender = lower, .receiver = upper, .cap = boundary.backward.bytes_per_second});
  };
  for (uint32_t b = 0; b < cost.boundaries.size(); ++b) {
    add(chain::UpperStage(b), chain::LowerStage(b), cost.boundaries[b]);
  }
  if (cost.tied) add(0, chain::LastStage(static_cast<uint32_t>(cost.stages.size())), *cost.tied);
  ends_.assign(transfers_.size(), kNever);
  open_.reserve(transfers_.size());
}

void FluidNetwork::Start(uint32_t link, double bytes, double now) {
  Transfer& transfer = transfers_[link];
  transfer.busy = true;
  transfer.remaining_bytes = bytes;
  transfer.since = now;
  transfer.rate = 0;
  changed_ = true;
}

void FluidNetwork::End(uint32_t link) {
  transfers_[link].busy = false;
  ends_[link] = kNever;
  changed_ = true;
}

void FluidNetwork::SetRate(uint32_t link, double rate, double now) {
  Transfer& transfer = transfers_[link];
  if (rate == transfer.rate) return;
  if (transfer.rate > 0) {
    transfer.remaining_bytes =
        std::max(0.0, transfer.remaining_bytes - transfer.rate * (now - transfer.since));
  }
  transfer.rate = rate;
  transfer.since = now;
  ends_[link] = now + (transfer.remaining_bytes > 0 ? transfer.remaining_bytes / rate : 0);
}

// Progressive filling: who has the least for each of its transfers gives them that, until all have
// a share.
void FluidNetwork::Share(double now) {
  if (!changed_) return;
  changed_ = false;
  for (size_t s = 0; s < egress_.size(); ++s) egress_[s].open = ingress_[s].open = 0;
  open_.clear();
  for (uint32_t link = 0; link < transfers_.size(); ++link) {
    const Transfer& transfer = transfers_[link];
    if (!transfer.busy) continue;
    open_.push_back(link);
    ++egress_[transfer.sender].open;
    ++ingress_[transfer.receiver].open;
  }
  for (size_t s = 0; s < egress_.size(); ++s) {
    for (Interface* interface : {&egress_[s], &ingress_[s]}) {
      interface->left =
          interface->bytes_per_second * (interface->open > 1 ? shared_efficiency_ : 1);
    }
  }
  const auto most = [this](uint32_t link) {
    const Transfer& transfer = transfers_[link];
    return std::min(
        {transfer.cap, egress_[transfer.sender].each(), ingress_[transfer.receiver].each()});
  };
  while (!open_.empty()) {
    double share = kNever;
    for (const uint32_t link : open_) share = std::min(share, most(link));
    // Who gets it is settled before anything is taken, so that the order of links does not matter.
    const auto settled = std::partition(open_.begin(), open_.end(), [&](uint32_t link) {
      return share != kNever && most(link) > share * (1 + 1e-12);
    });
    for (auto it = settled; it != open_.end(); ++it) {
      const Transfer& transfer = transfers_[*it];
      SetRate(*it, share, now);
      for (Interface* interface : {&egress_[transfer.sender], &ingress_[transfer.receiver]}) {
        --interface->open;
        if (share != kNever) interface->left = std::max(0.0, interface->left - share);
      }
    }
    open_.erase(settled, open_.end());
  }
}

}  // namespace longhaul::schedule
