#include "run/schedule/fluid_network.h"

#include <algorithm>
#include <cmath>

#include "run/plan/chain.h"

namespace longhaul::schedule {

FluidNetwork::FluidNetwork(const PipelineCost& cost) : shared_efficiency_(cost.shared_efficiency) {
  for (const StageCost& stage : cost.stages) {
    egress_.push_back({.bytes_per_second = stage.egress_bytes_per_second});
    ingress_.push_back({.bytes_per_second = stage.ingress_bytes_per_second});
  }
  const auto add = [this](uint32_t upper, uint32_t lower, const BoundaryCost& boundary) {
    transfers_.push_back({.egress = &egress_[upper],
                          .ingress = &ingress_[lower],
                          .cap = boundary.forward.bytes_per_second});
    transfers_.push_back({.egress = &egress_[lower],
                          .ingress = &ingress_[upper],
                          .cap = boundary.backward.bytes_per_second});
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

double FluidNetwork::MostOf(const Transfer& transfer) {
  return std::min({transfer.cap, transfer.egress->each(), transfer.ingress->each()});
}

// Progressive filling: who has the least for each of its transfers gives them that, until all have
// a share. Only transfers at the same interface have a say in it: one that gets no more than any of
// these is settled, whatever others get.
void FluidNetwork::Share(double now) {
  if (!changed_) return;
  changed_ = false;
  open_.clear();
  for (uint32_t link = 0; link < transfers_.size(); ++link) {
    Transfer& transfer = transfers_[link];
    if (!transfer.busy) continue;
    open_.push_back(link);
    transfer.egress->open = transfer.ingress->open = 0;
  }
  for (const uint32_t link : open_) {
    ++transfers_[link].egress->open;
    ++transfers_[link].ingress->open;
  }
  for (const uint32_t link : open_) {
    for (Interface* interface : {transfers_[link].egress, transfers_[link].ingress}) {
      interface->left =
          interface->bytes_per_second * (interface->open > 1 ? shared_efficiency_ : 1);
    }
  }
  while (!open_.empty()) {
    for (const uint32_t link : open_) {
      transfers_[link].egress->least = transfers_[link].ingress->least = kNever;
    }
    for (const uint32_t link : open_) {
      Transfer& transfer = transfers_[link];
      transfer.most = MostOf(transfer);
      for (Interface* interface : {transfer.egress, transfer.ingress}) {
        interface->least = std::min(interface->least, transfer.most);
      }
    }
    // Who gets it is settled before anything is taken, so that the order of links does not matter.
    const auto settled = std::partition(open_.begin(), open_.end(), [&](uint32_t link) {
      const Transfer& transfer = transfers_[link];
      const double least = std::min(transfer.egress->least, transfer.ingress->least);
      return least != kNever && transfer.most > least * (1 + 1e-12);
    });
    for (auto it = settled; it != open_.end(); ++it) {
      const Transfer& transfer = transfers_[*it];
      SetRate(*it, transfer.most, now);
      for (Interface* interface : {transfer.egress, transfer.ingress}) {
        --interface->open;
        if (transfer.most != kNever) {
          interface->left = std::max(0.0, interface->left - transfer.most);
        }
      }
    }
    open_.erase(settled, open_.end());
  }
}

}  // namespace longhaul::schedule
