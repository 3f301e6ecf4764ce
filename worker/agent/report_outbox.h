// The queue of a worker's reports to its coordinator over many sessions. A report waits for a
// session, is written, and is repeated in the next session.
//
// Written reports may be lost: with a broken connection, or by a coordinator that ends before it
// stores them. So each new session first repeats the newest written reports of the current attempt
// ("epoch"). A repeated report does no harm.
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
  // Queues a report. Drops the report if 100,000 reports already wait. Drops a log line if 1,000
  // reports of any kind already wait.
  void Push(v1::WorkerMessage message);
  // Queues the kept reports (see Written) again, before all others.
  void BeginSession();
  // The next report to write; null: nothing waits. Valid until another method is called.
  const v1::WorkerMessage* Next() const { return waiting_.empty() ? nullptr : &waiting_.front(); }
  size_t waiting() const { return waiting_.size(); }
  // Removes Next(), which must not be null, from the queue; call this after writing the report.
  // Keeps the newest 4,096 reports about the work of one epoch for BeginSession, and drops them
  // when such a report of another epoch is written.
  void Written();

 private:
  std::deque<v1::WorkerMessage> waiting_;
  std::deque<v1::WorkerMessage> written_;  // of one epoch, oldest first
};

}  // namespace longhaul::worker
