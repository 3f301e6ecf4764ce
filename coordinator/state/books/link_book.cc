#include "coordinator/state/books/link_book.h"

namespace longhaul::coordinator {

void LinkBook::Note(const Probe& probe, const ProbeResult& result, MonoTime now) {
  const auto note = [&](const WorkerId& from, const WorkerId& to, double bits_per_second) {
    LinkRecord& link = links_[{from, to}];
    link.round_trip = result.round_trip;
    // Goodput that was measured before is better than none.
    if (probe.edge.round_trips_only && link.bits_per_second > 0) return;
    link.transport = probe.transport;
    link.bits_per_second = bits_per_second;
    link.at = now;
  };
  note(probe.edge.from, probe.edge.to, result.forward_bits_per_second);
  note(probe.edge.to, probe.edge.from, result.backward_bits_per_second);
}

void LinkBook::Drop(const WorkerId& one, const WorkerId& other) {
  links_.erase({one, other});
  links_.erase({other, one});
}

void LinkBook::Forget(const WorkerId& id) {
  std::erase_if(links_, [&](const auto& entry) {
    return entry.first.first == id || entry.first.second == id;
  });
}

const LinkRecord* LinkBook::Find(const WorkerId& from, const WorkerId& to) const {
  const auto found = links_.find({from, to});
  return found == links_.end() ? nullptr : &found->second;
}

std::vector<LinkBook::Entry> LinkBook::Among(std::span<const WorkerId> workers) const {
  std::map<WorkerId, size_t> places;
  for (size_t i = 0; i < workers.size(); ++i) places[workers[i]] = i;
  std::map<std::pair<size_t, size_t>, const LinkRecord*> sorted;
  for (const auto& [pair, link] : links_) {
    const auto from = places.find(pair.first), to = places.find(pair.second);
    if (from == places.end() || to == places.end()) continue;
    sorted[{from->second, to->second}] = &link;
  }
  std::vector<Entry> entries;
  entries.reserve(sorted.size());
  for (const auto& [pair, link] : sorted) {
    entries.push_back({workers[pair.first], workers[pair.second], *link});
  }
  return entries;
}

}  // namespace longhaul::coordinator
