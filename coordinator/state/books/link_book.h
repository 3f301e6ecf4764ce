// The newest measurements from one worker to another: goodput and round trips. Pure data; not
// thread-safe.
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
  MonoTime at;
};

class LinkBook {
 public:
  // Records both directions between the ends of a probe, and replaces older values.
  void Note(const Probe& probe, const ProbeResult& result, MonoTime now);
  // Two workers measure their link anew: drops the old values.
  void Drop(const WorkerId& one, const WorkerId& other);
  // The worker has a new process or address, or is no longer known.
  void Forget(const WorkerId& id);

  // Null: not measured. Valid until the book changes.
  const LinkRecord* Find(const WorkerId& from, const WorkerId& to) const;
  // The measured directions between these workers, in their order.
  struct Entry {
    WorkerId from, to;
    LinkRecord link;
  };
  std::vector<Entry> Among(std::span<const WorkerId> workers) const;

 private:
  std::map<std::pair<WorkerId, WorkerId>, LinkRecord> links_;  // (from, to)
};

}  // namespace longhaul::coordinator
