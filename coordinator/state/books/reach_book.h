// Finds out which workers can open connections to each other. The connected workers form a ring in
// the order of their names. When a worker connects, it and its peers (up to four on each side in
// the ring) dial each other, over each transport. Two workers are cut off over a transport if
// neither reaches the other. Plans then do not join the two over this transport, and the two try
// again every 30 seconds. Where many workers come at once, for example after the coordinator was
// away, the later ones dial when all have come.
//
//   ReachBook book(options);
//   Carry(book.Come(worker, now));       // Carry sends the questions and logs the sentences
//   Carry(book.Answer(id, tried, now));
//   Carry(book.PassTime(now));           // in every tick, and at NextWake() at the latest
//
// Pure data: the owner of the book sends the questions and logs the sentences, in the order of the
// lists. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "coordinator/state/books/reach_addresses.h"
#include "coordinator/state/books/reach_checks.h"
#include "coordinator/state/books/reach_ring.h"
#include "longhaul/v1/worker.pb.h"

namespace longhaul::coordinator {

class ReachBook {
 public:
  struct Options {
    absl::Duration patience;   // time limit of an answer
    std::string secret;        // random bytes; link secrets of all checks are derived from them
    uint64_t first_check = 1;  // number of the first question
    // Returns the name, for sentences, of a worker that this book knows.
    std::function<std::string(const WorkerId&)> label;
  };
  using Worker = ReachWorker;
  // A request to two connected workers: `dialler` must dial `dialled` at each of the addresses, and
  // `dialled` must expect these connections.
  struct Question {
    uint64_t check = 0;
    WorkerId dialler, dialled;
    std::string transport;
    std::vector<std::string> addresses;
    std::string link_secret;
  };
  struct News {
    std::vector<Question> questions;
    std::vector<std::string> sentences;  // for people
    bool has_changed = false;            // results of "What is known" below may have changed
  };

  explicit ReachBook(Options options);

  // ---- Facts ----------------------------------------------------------------------

  // Call this when a worker has a new session. If the worker has a new process or other addresses,
  // call Forget before. Drops open questions in which the worker dials or is dialled, and asks what
  // is not yet known about the worker and its peers.
  News Come(const Worker& worker, MonoTime now);
  // Call this when a worker has no session any more. Drops open questions in which the worker dials
  // or is dialled. Results stay.
  void Leave(const WorkerId& id);
  // Drops all that is known about the worker.
  void Forget(const WorkerId& id);
  // Takes an answer of `from`. Ignores it if `from` has no such open question.
  News Answer(const WorkerId& from, const v1::ReachTried& tried, MonoTime now);
  // Drops questions whose time is over, asks again about workers that are cut off, and reports
  // addresses that no worker reaches.
  News PassTime(MonoTime now);

  // ---- What is known --------------------------------------------------------------

  // Returns when PassTime is due at the latest; MonoTime::max(): never.
  MonoTime NextWake() const;
  // Returns whether an answer is awaited that decides which of two neighbours in a pipeline dials,
  // or whether they are cut off. `lower` gets activations from `upper`. `lower` dials, unless it is
  // known not to reach `upper`, or `upper` cannot be dialled; then `upper` dials.
  bool IsAsking(const WorkerId& upper, const WorkerId& lower, const std::string& transport) const;
  // A worker that `from` does not reach over a transport, and the reason.
  struct Failure {
    WorkerId to;
    std::string transport;
    std::string problem;
  };
  // Returns what `from` does not reach.
  std::vector<Failure> FailuresOf(const WorkerId& from) const;
  // Another connected worker from which a worker is cut off over a transport.
  struct CutOff {
    std::string name;  // name of the other worker
    std::string transport;
    std::string problem;
    MonoTime at;  // when the cut was found, or when the two workers last began to try again
  };
  // The relations of a worker to the connected workers; empty if the worker is not connected.
  struct Standing {
    uint32_t talks_to = 0;        // workers reachable over some transport and not cut off over any
    std::vector<CutOff> cut_off;  // by name
  };
  Standing StandingOf(const WorkerId& id) const;
  // Aborts the process if the book contradicts itself.
  void CheckInvariants() const;

 private:
  // For a pair of workers, `from` is the smaller id.
  using Key = ReachKey;
  struct Result {
    bool is_reached = false;
    std::string problem;  // about the addresses that were not reached
    MonoTime at;
  };
  // Two workers that are cut off over one transport.
  struct Cut {
    std::string problem;
    MonoTime at;
    std::optional<MonoTime> again_at;  // nullopt: not before both are connected
  };
  // The relation of two workers, over all transports and in both directions.
  struct Relation {
    bool is_reached = false;  // over some transport
    bool is_cut = false;      // over some transport
  };

  std::string Label(const WorkerId& id) const { return options_.label(id); }
  void SayUntried(const Worker& worker, News* news) const;
  void AskPeersOf(const Worker& worker, MonoTime now, News* news);
  void Ask(const Key& key, MonoTime now, News* news);
  // Returns whether the question is under way, or will be asked when a crowd has come.
  bool IsToBeAsked(const Key& key) const;
  MonoTime CrowdEnds() const;
  void NotePair(Key key, MonoTime now, News* news);
  void NoteRelation(const WorkerId& one, const WorkerId& other);
  void SayUnreached(News* news);
  void TryAgainAt(const Key& pair, Cut& cut, std::optional<MonoTime> at);

  const Options options_;
  ReachRing workers_;
  ReachChecks checks_;
  std::map<Key, Result> results_;                    // newest
  std::map<Key, Cut> cuts_;                          // by pair
  std::set<std::pair<MonoTime, Key>> cuts_by_time_;  // cuts with a time
  // Has an entry, in both directions, for each pair in checks_, results_ or cuts_.
  std::map<WorkerId, std::map<WorkerId, Relation>> relations_;
  ReachAddresses addresses_;
  // Workers come in a crowd if there is no gap between them.
  size_t crowd_ = 0;
  MonoTime crowd_began_{}, last_came_{};
  std::set<WorkerId> later_;  // connected; their peers are asked when the crowd has come
};

}  // namespace longhaul::coordinator
