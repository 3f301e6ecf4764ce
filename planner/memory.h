// Memory of a stage, term by term. Pure. All sizes in bytes.
#pragma once

#include <cstdint>

#include "run/file/run_spec.h"

namespace longhaul::coordinator {

// Number of trained parameters of a stage, by the model's descriptor (run/model/family.h); with
// LoRA only the adapters. Here and below: `vocabulary` is the number of the tokenizer's tokens;
// embedding and head have this many rows, unless model.vocabulary sets another number. `first`: the
// stage has the embedding. `last`: the stage has the final norm and the head. If embedding and head
// are tied, both stages hold the matrix.
uint64_t StageParameters(const ModelSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                         bool last);

// Number of trained parameters that one rank of the run's group holds. Ranks may differ by a row of
// the vocabulary; the larger number counts.
uint64_t RankParameters(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                        bool last);

// Number of values in a stage's optimizer state, whatever their type. AdamW has two for each
// parameter. Muon has one for each element of a block's matrices, and AdamW's two for the rest.
uint64_t StageMoments(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                      bool last);
// Bytes of the tables that a codec which predicts activations by their tokens (codec/predict) keeps
// at each end of a boundary. The largest tables count. If the run file says auto, the chosen codecs
// count; before the choice, all codecs that the plan may choose count. 0: no codec has tables.
uint64_t TableBytes(const RunSpec& spec, uint32_t vocabulary);
// Bytes of a stage's state in a checkpoint, a copy or a snapshot in memory: parameters and
// optimizer state in fp32, and the tables of tokens of the boundary below, in fp32 too. Where steps
// overlap, the parameters of both steps. Data-parallel replicas change the sum. The own shard is
// the part of the stage's parameters that this replica updates:
//   - replicas that update together: only the own shard of the optimizer state
//   - replicas that train apart (local-sgd): also the outer momentum of the own shard and, with
//     delayed exchanges, another copy of the parameters
//   - parameters exchanged in a rounded form: also the own shard in fp32
//   - gradients with feedback=on or tagc (run/replicas/options.h): also the rest that was not sent,
//     4 bytes a parameter
uint64_t StageStateBytes(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                         bool last);

// Memory of the worker's program and its libraries.
inline constexpr uint64_t kProgramBytes = uint64_t{256} << 20;
// Boundary tensors that the links of a stage hold, beside those of its microbatches in flight.
inline constexpr uint64_t kBoundaryBuffers = 4;

struct StageMemory {
  // Memory of the device; in a group, of each rank's device.
  uint64_t fixed = 0;       // the same for every number of microbatches in flight
  uint64_t per_flight = 0;  // for each microbatch in flight
  // Memory of a GPU's host; 0 on a CPU, where `fixed` includes it.
  uint64_t host = 0;
  // The device's memory with `depth` microbatches in flight.
  uint64_t At(uint32_t depth) const { return fixed + depth * per_flight; }
};
// The memory of a stage, as the worker allocates it (worker/stage). Sizes are sums of these terms:
//
// fixed, on the device:
//   - each trained parameter: 8 bytes, its value and its gradient in fp32. Each frozen parameter
//     (LoRA): its value alone, in the type of products, or in fp32 for norms. With quantize_base a
//     matrix of a block: its stored form (codec/quantized/format.h); and for all of them together
//     the largest one in the type of products
//   - each number of optimizer state: 4 bytes, or 2 in bf16. On a GPU, state in bf16 needs 64 MiB
//     more, where it is converted to fp32 piece by piece
//   - on a CPU: the terms of `host` below, without encoded boundary tensors, the 64 MiB and
//     kProgramBytes
//   - with Muon: the update of the largest matrix, 16 bytes an element, and 8 bytes an element of
//     its product with its transpose
//   - with bf16: casts of the parameters of blocks and head, 2 bytes each
//   - with recomputation: what autograd keeps of one microbatch (Recompute::kStage) or of one block
//     of it (kBlocks), while it is recomputed
//   - 4 boundary tensors: one received and one sent in each direction
//   - for each boundary whose codec predicts by tokens: its tables and 2 boundary tensors
//   - last stage: the logits of one microbatch in fp32, and as much for a copy or their gradient.
//     Where the loss is computed in chunks (run/model/loss_chunks.h): the same for one chunk only,
//     and what autograd keeps of the chunk
//   - with dropout of adapters (LoRA): two copies of the widest input of an adapter, in the type of
//     products, and 9 bytes a number of a piece of the mask: 64 Ki numbers on a CPU, 4 Mi on a GPU
//   - with train.dpo: one activation more. Activations have twice as many samples as gradients
//     (run/boundary/boundary_shape.h), and count so in all terms that name boundary tensors. The
//     pass without adapters keeps nothing: it is done before the activations of its microbatch are
//     kept. With slices: keys and values of the earlier ones without adapters; on a GPU these are
//     in per_flight
//   - kProgramBytes
//   - on a GPU: 192 MiB for all workspaces that cuBLAS keeps, and 8 boundary tensors for
//     temporaries of the pass that runs; with capped scores of attention, 14 copies of a chunk of
//     them (run/model/attention_chunks.h), less the logits and, with kBlocks, what the block's MLP
//     kept: they are given back before; with data.mask_documents in bf16, sums of queries'
//     gradients in fp32, 128 tokens for each document of a recorded pass
//
// per_flight, on the device, for each microbatch of B x T tokens in flight:
//   - what autograd keeps of each block and, on the last stage, of the final norm, by the family
//     (Family::kept_by_block): 4 bytes a value, 2 bytes where products keep it in bf16. Last stage:
//     also the log-softmax of the logits where they are one chunk. With LoRA: also, for a token, as
//     many numbers as each adapter's rank; for adapters of experts, those of the token's experts.
//     On a GPU in fp32: keys and values for every head of queries. Where no fused kernel computes
//     attention within windows: its output once more
//   - the stage's input and output
//   - on a GPU, because CUDA graphs have memory of their own for each microbatch: one boundary
//     tensor, and 20 MiB lost because LibTorch allocates this much at a time. With dropout of
//     adapters also a copy of the widest input of an adapter, and a piece's mask. On the last
//     stage, where the logits are one chunk: the logits in fp32 and, with bf16, also in bf16. With
//     train.dpo, where they are several chunks: those of one chunk in fp32
//   - with recomputation, instead of all terms above: the stage's input and output; with kBlocks
//     also the inputs of all blocks but the first
//   - with slices: for each later slice, keys and values of the earlier ones; with recomputation,
//     only one copy of them. On a GPU also further copies, and gradients
//   - with slices, windows or data.mask_documents where no fused kernel computes attention (on a
//     CPU, or in fp32): masks of T x T numbers that all blocks share, in the type of products, for
//     each row with mask_documents
//
// host, beside a GPU:
//   - a checkpoint's snapshot (StageStateBytes), or two where the run takes snapshots repeatedly
//   - at an end of a tied matrix: the gradient that the other end sends in a step, and 32 MiB for
//     pieces of its own gradient that are being sent
//   - where a codec predicts by tokens: the tables twice more, on their way to a snapshot or from a
//     checkpoint, where a stage in the middle reads the tables of both boundaries
//   - with replicas that update a stage together: the optimizer state of the own shard, which is
//     then not in `fixed`, and 8 bytes for each parameter of this shard. For messages, 12 bytes for
//     each parameter of other shards. 4 bytes a parameter where gradients leave a rest for later
//     steps, and as many again with on_nonfinite: skip, which may have to restore this rest. On a
//     GPU a copy of the values and gradients; in a group, the copies of all ranks and 8 bytes a
//     parameter, where they are put together
//   - the same on a GPU without a group, where the GPU codes the exchange: all terms but the
//     messages are in `fixed`, with several times the numbers of a bucket; there is no copy of
//     values and gradients
//   - with replicas that train apart (local-sgd): as when they update together, but the whole
//     optimizer state is in `fixed`. In addition 4 bytes for each parameter of the own shard (outer
//     momentum), and 12 bytes a parameter (anchors and differences)
//   - 4 encoded boundary tensors, counted in fp32, because clean validations send fp32
//   - 64 MiB, through which snapshots come from the GPU
//   - kProgramBytes
//
// Where steps overlap (ScheduleTraits::overlaps_steps), parameters, gradients and casts exist
// twice, and on a GPU also what passes keep, because graphs are recorded for both versions; a
// snapshot has the parameters of both.
//
// In a group of ranks (group.tensor), parameters, frozen ones too, gradients, optimizer state,
// casts and logits are a rank's share, and so is what autograd keeps between split matrices. Norms,
// the residual and boundary tensors are whole on every rank; with group.sequence norms and
// residuals cover the rank's tokens. One snapshot more holds the ranks' copies until they are put
// together. On a CPU the devices of the ranks share the snapshots and kProgramBytes of their
// process. On a GPU each rank has its own 64 MiB in `host`. NCCL's own memory is not counted.
//
// Attention keeps no T x T matrix of scores, because the fused kernels of CPU and GPU do not.
// memory_parity_test and memory_gpu_test compare these sums with what LibTorch takes.
StageMemory MemoryOf(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                     bool last, bool on_gpu = false);

}  // namespace longhaul::coordinator
