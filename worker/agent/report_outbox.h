// The queue of a worker's reports to its coordinator over many sessions. A report waits for a
// session, is written, and is repeated in the next session.
//
// Reports written when a connection broke may be lost with it, or with a coordinator that had not
// stored them. So each new session begins with the newest reports of the current attempt ("epoch")
// again. Repeating reports is harmless.
//
//   outbox.BeginSession();
//   while (const v1::WorkerMessage* next = outbox.Next()) {
//     if (!Write(*next)) break;   // it stays at the front
//     outbox.Written();
//   }
//
// Pure data; not thread-safe.
#pragma once

#include <cstddef>
#include <deque>

#include "longhaul/v1/worker.pb.h"

namespace longhaul::worker {

class ReportOutbox {
 public:
  // Queues a report. If too many wait, reports are dropped, log lines first.
  void Push(v1::WorkerMessage message);
  // Queues the reports written in the last session again, before all others.
  void BeginSession();
  // The next report to write; null: nothing waits. Valid until another method is called.
  const v1::WorkerMessage* Next() const { return waiting_.empty() ? nullptr : &waiting_.front(); }
  size_t waiting() const { return waiting_.size(); }
  // Marks Next() as written. If it is a report of an epoch, keeps it until a report of another
  // epoch is written.
  void Written();

 private:
  std::deque<v1::WorkerMessage> waiting_;
  std::deque<v1::WorkerMessage> written_;  // of one epoch, oldest first
};

}  // namespace longhaul::worker
