// Chunks of data sets from and for the other workers of a run that read the same (chunk_pairs.h),
// for one epoch: a link of its own with each, beside those that the plan has. Losing one ends
// nothing: its chunks then come from the coordinator.
//
//   who asks                          who holds
//     an ask: which of the list's  -->
//                                  <--  pieces of the chunk, paced; or that it is not here
//
// Only chunks of the run's list can be named. What comes is held against the list's size and
// SHA-256. Each side has at most kMostAsks asks at a time of the other one, which are answered one
// after the other. Who is silent for kSilence during an ask is not asked for kSilentFor; who breaks
// the rules, or sends other bytes, not again in the epoch.
//
// Thread-safe. A thread for each pair answers.
#ifndef LONGHAUL_WORKER_RPC_CHUNK_PEERS_H_
#define LONGHAUL_WORKER_RPC_CHUNK_PEERS_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "transport/p2p/link.h"
#include "worker/data/set_chunks.h"
#include "worker/pipeline/traffic_watch.h"
#include "worker/rpc/chunk_pairs.h"

namespace longhaul::worker {

struct ChunkPeersOptions {
  std::map<std::string, transport::Transport*, std::less<>> transports;
  TrafficWatch* traffic = nullptr;
  RunId run;
  Epoch epoch;
  std::string link_secret;
  bool sealed = false;  // links are encrypted
  absl::Duration peer_timeout = absl::Seconds(10);
  std::vector<ChunkPair> pairs;
  // For tests: kSilence.
  absl::Duration silence = absl::Seconds(20);
};

class ChunkPeers : public OtherReaders {
 public:
  static constexpr size_t kMostAsks = 4;
  static constexpr absl::Duration kSilentFor = absl::Minutes(2);
  // For links that are not open yet, after the first ask.
  static constexpr absl::Duration kOpenPatience = absl::Seconds(3);

  // Begins to open the links. Transports and `traffic` outlive it.
  explicit ChunkPeers(ChunkPeersOptions options);
  ~ChunkPeers() override;

  // Answers others out of `chunks`; asks that came before wait for that. Once.
  void Serve(const std::shared_ptr<SetChunks>& chunks);
  StatusOr<Found> Fetch(const ChunkId& id, uint64_t bytes, const std::string& sha256,
                        const ChunkGivenUp& given_up) override;
  // The peer is reached elsewhere now.
  void Readdress(const CellId& peer, const std::vector<std::string>& addresses);
  // Fetch gives nothing more, at once. Idempotent.
  void GiveUp();
  // Ends links and threads. Idempotent.
  void Close();

 private:
  class Peer;
  std::vector<std::shared_ptr<Peer>> peers_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_CHUNK_PEERS_H_
