// What was measured from one worker to another, newest only: goodput and round trips. Pure data;
// not thread-safe.
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
  double bits_per_second = 0;  // goodput, as it arrived; 0: round trips alone are known
  absl::Duration round_trip;
  MonoTime at;
};

class LinkBook {
 public:
  // Both directions between the ends of a probe, in place of what was known of them.
  void Note(const Probe& probe, const ProbeResult& result, MonoTime now);
  // Two workers measure their link anew: the old values are not to be used.
  void Drop(const WorkerId& one, const WorkerId& other);
  // A worker is another process, is reached elsewhere, or is not known any more.
  void Forget(const WorkerId& id);

  // Null: nothing is known. Valid until the book changes.
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
