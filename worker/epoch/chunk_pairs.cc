#include "worker/epoch/chunk_pairs.h"

#include <algorithm>
#include <utility>

#include "run/kinds/transports.h"

namespace longhaul::worker {
namespace {

const Edge* EdgeBetween(const Assignment& assignment, const CellId& a, const CellId& b) {
  const auto found = std::ranges::find_if(assignment.edges, [&](const Edge& edge) {
    return (edge.from == a && edge.to == b) || (edge.from == b && edge.to == a);
  });
  return found == assignment.edges.end() ? nullptr : &*found;
}

std::vector<std::string> AddressesOf(const Cell& cell, const std::string& transport) {
  const Endpoint* endpoint = cell.EndpointOf(transport);
  return endpoint == nullptr ? std::vector<std::string>() : endpoint->addresses;
}

// The least rate at which the cell sends over its edges: the line of all is the same.
double RateOf(const Assignment& assignment, const CellId& cell) {
  double least = 0;
  for (const Edge& edge : assignment.edges) {
    if (edge.from != cell && edge.to != cell) continue;
    const double rate = edge.SentBy(cell).bits_per_second;
    if (rate > 0 && (least == 0 || rate < least)) least = rate;
  }
  return least;
}

// What a way from `dialler` to `dialled` is for `me`, which is one of both.
ChunkPair::Way WayOf(uint32_t number, const Cell& dialler, const Cell& dialled, const CellId& me,
                     const std::string& transport) {
  const bool dials = dialler.id == me;
  return {.number = EdgeId(number),
          .dials = dials,
          .addresses = AddressesOf(dials ? dialled : dialler, transport)};
}

}  // namespace

std::vector<ChunkPair> ChunkPairsOf(const Assignment& assignment, const CellId& me, bool all_read) {
  const Cell* first = nullptr;
  std::vector<const Cell*> others;
  for (const Cell& cell : assignment.cells) {
    if (cell.id.replica != me.replica) continue;
    if (cell.roles.embedding) {
      first = &cell;
    } else if (cell.roles.head || all_read) {
      others.push_back(&cell);
    }
  }
  std::vector<ChunkPair> pairs;
  if (first == nullptr) return pairs;
  for (const Cell* other : others) {
    if (me != first->id && me != other->id) continue;
    const Cell& peer = me == first->id ? *other : *first;
    ChunkPair pair{.peer = peer.id,
                   .peer_worker = peer.worker_name,
                   .fetches_for = me == first->id,
                   .transport = {},
                   .bits_per_second = RateOf(assignment, me),
                   .ways = {}};
    const auto number = 2 * static_cast<uint32_t>(assignment.PlaceOf(other->id));
    if (const Edge* edge = EdgeBetween(assignment, first->id, other->id)) {
      pair.transport = edge->transport;
      pair.ways = {WayOf(number, *assignment.Find(edge->dialler()),
                         *assignment.Find(edge->dialled()), me, pair.transport)};
    } else {
      // Over that of the way to the other one, which both know.
      const Edge* above = assignment.Incoming(other->id, EdgeKind::kActivations);
      if (above == nullptr) continue;
      pair.transport = above->transport;
      uint32_t way = number;
      for (const auto& [dialler, dialled] : {std::pair(other, first), std::pair(first, other)}) {
        if (!AddressesOf(*dialled, pair.transport).empty()) {
          pair.ways.push_back(WayOf(way, *dialler, *dialled, me, pair.transport));
        }
        ++way;
      }
    }
    // A relay carries what trains, and no chunks.
    if (pair.transport == ToString(TransportKind::kRelay)) continue;
    if (peer.EndpointOf(pair.transport) != nullptr) pairs.push_back(std::move(pair));
  }
  return pairs;
}

}  // namespace longhaul::worker
