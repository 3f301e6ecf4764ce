// Exchanges chunks of data sets with other workers of a run that read the same text
// (chunk_pairs.h), for one attempt ("epoch"), over a separate link with each. Losing such a link
// ends nothing: the chunks then come from the coordinator.
//
//   asks                              holds
//     request for a listed chunk  -->
//                                 <--  pieces of the chunk, paced; or "not here"
//
// Only chunks of the run's list can be named. Answers are checked against the list's size and
// SHA-256. Each side has at most kMostAsks open requests, answered one after the other. A peer that
// is silent for `silence` during a request is not asked for kSilentFor. A peer that breaks the
// protocol or sends wrong bytes is not asked again in this attempt.
//
// Thread-safe. One thread a pair answers requests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "transport/p2p/link.h"
#include "worker/data/set_chunks.h"
#include "worker/epoch/chunk_pairs.h"
#include "worker/pipeline/traffic_watch.h"

namespace longhaul::worker {

struct ChunkPeersOptions {
  transport::TransportsByName transports;
  TrafficWatch* traffic = nullptr;
  RunId run;
  Epoch epoch;
  std::string link_secret;
  bool sealed = false;  // links are encrypted
  absl::Duration peer_timeout = absl::Seconds(10);
  std::vector<ChunkPair> pairs;
  // A peer that sends nothing for this time during a request counts as silent. Tests shorten it.
  absl::Duration silence = absl::Seconds(20);
};

class ChunkPeers : public OtherReaders {
 public:
  static constexpr size_t kMostAsks = 4;
  static constexpr absl::Duration kSilentFor = absl::Minutes(2);
  // How long Fetch waits for links that are not open yet, after the first request.
  static constexpr absl::Duration kOpenPatience = absl::Seconds(3);

  // Begins to open the links. Transports and `traffic` outlive this object.
  explicit ChunkPeers(ChunkPeersOptions options);
  ~ChunkPeers() override;

  // Answers peers from `chunks`; earlier requests wait for this call. Call it once.
  void Serve(const std::shared_ptr<SetChunks>& chunks);
  StatusOr<Found> Fetch(const ChunkId& id, uint64_t bytes, const std::string& sha256,
                        const ChunkGivenUp& given_up) override;
  // Replaces the peer's addresses.
  void Readdress(const CellId& peer, const std::vector<std::string>& addresses);
  // Makes Fetch fail at once from now on. Idempotent.
  void GiveUp();
  // Ends links and threads. Idempotent.
  void Close();

 private:
  class Peer;
  std::vector<std::shared_ptr<Peer>> peers_;
};

}  // namespace longhaul::worker
