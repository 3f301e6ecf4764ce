// What a worker has to say to its coordinator, over many sessions: waits for a session, is written,
// and is said again in the next one.
//
// What was written when a connection broke may have been lost with it, or with the coordinator's
// process before it stored it: each new session begins with the newest reports of the epoch at hand
// once more. Saying them twice does no harm.
//
//   outbox.BeginSession();
//   while (const v1::WorkerMessage* next = outbox.Next()) {
//     if (!Write(*next)) break;   // it stays at the front
//     outbox.Written();
//   }
//
// Pure data; not thread-safe.
#ifndef LONGHAUL_WORKER_RPC_REPORT_OUTBOX_H_
#define LONGHAUL_WORKER_RPC_REPORT_OUTBOX_H_

#include <cstddef>
#include <deque>

#include "longhaul/v1/worker.pb.h"

namespace longhaul::worker {

class ReportOutbox {
 public:
  // Drops the message where too many wait; log lines are the first to be dropped.
  void Push(v1::WorkerMessage message);
  // What was written in the session before is to be written again, before what waits.
  void BeginSession();
  // Nullptr: nothing waits. Valid until the next call of another method.
  const v1::WorkerMessage* Next() const { return waiting_.empty() ? nullptr : &waiting_.front(); }
  size_t waiting() const { return waiting_.size(); }
  // Next() was written. It is kept, where it is a report of an epoch, until one of another epoch is
  // written.
  void Written();

 private:
  std::deque<v1::WorkerMessage> waiting_;
  std::deque<v1::WorkerMessage> written_;  // of one epoch, oldest first
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_REPORT_OUTBOX_H_
