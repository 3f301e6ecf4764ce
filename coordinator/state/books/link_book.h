// The newest measurements of the links between workers: goodput in each direction, and round-trip
// times. Pure data; not thread-safe.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "coordinator/state/books/probe_rounds.h"
#include "run/file/run_spec.h"

namespace longhaul::coordinator {

// One direction of a link.
struct LinkRecord {
  TransportKind transport = TransportKind::kUcx;
  double bits_per_second = 0;  // goodput at the receiver; 0: only round trips are known
  absl::Duration round_trip;
  MonoTime at;  // when the goodput was measured; if unknown, when the round trips were measured
};

class LinkBook {
 public:
  // Records the result of a probe (a measurement) for both directions, in place of older values. If
  // the goodput is known, a probe of round trips alone replaces only the round-trip time.
  void Note(const Probe& probe, const ProbeResult& result, MonoTime now);
  // Drops both directions, because the two workers measure their link anew.
  void Drop(const WorkerId& one, const WorkerId& other);
  // Drops all links of a worker that has a new process or address, or is no longer known.
  void Forget(const WorkerId& id);

  // Null: this direction was not measured. Valid until the book changes.
  const LinkRecord* Find(const WorkerId& from, const WorkerId& to) const;
  struct Entry {
    WorkerId from, to;
    LinkRecord link;
  };
  // Returns the measured directions between these workers, in the order of `workers`: first by
  // sender, then by receiver.
  std::vector<Entry> Among(std::span<const WorkerId> workers) const;

 private:
  std::map<std::pair<WorkerId, WorkerId>, LinkRecord> links_;  // (from, to)
};

}  // namespace longhaul::coordinator
