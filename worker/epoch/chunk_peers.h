// Exchanges chunks of data sets with the workers of a run that read the same text (chunk_pairs.h),
// for one attempt at the run ("epoch"). Each pair of workers has a separate link for the chunks. If
// that link is lost, training goes on, and the chunks come from the coordinator.
//
//   requesting worker                 holding worker
//     request for a listed chunk  -->
//                                 <--  pieces of the chunk, paced; or "not here"
//
// Only chunks in the run's list of data sets can be requested. An answer must have the size and
// SHA-256 that the list states. Each side may have at most kMostAsks unanswered requests; the other
// side answers them one after the other. A peer that sends nothing for `silence` during a request
// gets no request for kSilentFor. A peer that breaks the protocol or sends wrong bytes loses its
// link, and gets no request again in this attempt.
//
// Thread-safe. For each pair one thread answers requests.
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
  TrafficWatch* traffic = nullptr;  // not null; while tensors are in flight, chunks wait a while
  RunId run;
  Stamp stamp;                                      // of the assignment (base/ids.h)
  std::string link_secret;                          // both ends of a link must have the same secret
  bool sealed = false;                              // true: links are encrypted
  absl::Duration peer_timeout = absl::Seconds(10);  // a longer silence of the peer ends the link
  std::vector<ChunkPair> pairs;
  // A peer that sends nothing for this time during a request counts as silent. Tests shorten it.
  absl::Duration silence = absl::Seconds(20);
};

class ChunkPeers : public OtherReaders {
 public:
  static constexpr size_t kMostAsks = 4;  // unanswered requests to one peer
  // How long a silent peer gets no request.
  static constexpr absl::Duration kSilentFor = absl::Minutes(2);
  // How long requests to a peer wait for its link to open, counted from the first request.
  static constexpr absl::Duration kOpenPatience = absl::Seconds(3);

  // Begins to open the links. Skips pairs whose transport this worker lacks. The transports and
  // `traffic` must outlive this object.
  explicit ChunkPeers(const ChunkPeersOptions& options);
  ~ChunkPeers() override;

  // Begins to answer the peers' requests from `chunks`, which is kept until Close. Requests wait
  // for this call. Call it once.
  void Serve(const std::shared_ptr<SetChunks>& chunks);
  // Asks one peer after the other. Blocks. kCancelled: `given_up` became true. Other errors: the
  // reason why the last peer gave no chunk; kNotFound if there is no peer.
  StatusOr<Found> Fetch(const ChunkId& id, uint64_t bytes, const std::string& sha256,
                        const ChunkGivenUp& given_up) override;
  // Replaces the addresses at which this side dials `peer`.
  void Readdress(const CellId& peer, const std::vector<std::string>& addresses);
  // Makes all calls of Fetch fail at once, present and later ones. Idempotent.
  void GiveUp();
  // Ends the links and waits for the threads. Idempotent.
  void Close();

 private:
  class Peer;
  std::vector<std::shared_ptr<Peer>> peers_;
};

}  // namespace longhaul::worker
