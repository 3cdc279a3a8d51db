#include "train/parameter_set.h"

#include <array>
#include <utility>

namespace selmcast {
namespace {

using Shape = std::vector<std::uint64_t>;

/// Collects tensors under the naming rules that the architectures share.
class SetBuilder {
 public:
  explicit SetBuilder(std::string name) { set_.name = std::move(name); }

  void tensor(std::string name, Shape shape) {
    set_.tensors.push_back({std::move(name), std::move(shape)});
  }
  /// Weight and bias of `name`, with a bias as long as `outputs`.
  void with_bias(const std::string& name, Shape weight, std::uint64_t outputs) {
    tensor(name + ".weight", std::move(weight));
    tensor(name + ".bias", {outputs});
  }
  /// A dense layer that stores its weight as outputs x inputs.
  void linear(const std::string& name, std::uint64_t inputs, std::uint64_t outputs) {
    with_bias(name, {outputs, inputs}, outputs);
  }
  /// Scale and shift of a batch or layer normalisation.
  void norm(const std::string& name, std::uint64_t width) { with_bias(name, {width}, width); }
  /// A square convolution without bias, followed by a batch normalisation.
  void convolution_and_norm(const std::string& convolution, const std::string& normalisation,
                            std::uint64_t inputs, std::uint64_t outputs, std::uint64_t kernel) {
    tensor(convolution + ".weight", {outputs, inputs, kernel, kernel});
    norm(normalisation, outputs);
  }
  ParameterSet take() && { return std::move(set_); }

 private:
  ParameterSet set_;
};

/// 1x1, 3x3, 1x1 convolutions; the first block of a stage also projects its input.
void bottleneck(SetBuilder& set, const std::string& name, std::uint64_t inputs, std::uint64_t width,
                bool projects) {
  constexpr std::uint64_t kExpansion = 4;
  set.convolution_and_norm(name + ".conv1", name + ".bn1", inputs, width, 1);
  set.convolution_and_norm(name + ".conv2", name + ".bn2", width, width, 3);
  set.convolution_and_norm(name + ".conv3", name + ".bn3", width, width * kExpansion, 1);
  if (projects) {
    set.convolution_and_norm(name + ".downsample.0", name + ".downsample.1", inputs,
                             width * kExpansion, 1);
  }
}

}  // namespace

std::uint64_t TensorSpec::elements() const noexcept {
  std::uint64_t product = 1;
  for (const std::uint64_t dimension : shape) product *= dimension;
  return product;
}

std::uint64_t ParameterSet::parameters() const noexcept {
  std::uint64_t total = 0;
  for (const TensorSpec& tensor : tensors) total += tensor.elements();
  return total;
}

ParameterSet resnet50() {
  constexpr std::array<unsigned, 4> kBlocks{3, 4, 6, 3};
  SetBuilder set("resnet50");
  set.convolution_and_norm("conv1", "bn1", 3, 64, 7);
  std::uint64_t channels = 64;
  std::uint64_t width = 64;
  for (std::size_t stage = 0; stage < kBlocks.size(); ++stage) {
    for (unsigned block = 0; block < kBlocks.at(stage); ++block) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(block);
      bottleneck(set, name, channels, width, block == 0);
      channels = width * 4;
    }
    width *= 2;
  }
  set.linear("fc", channels, 1000);
  return std::move(set).take();
}

ParameterSet vgg16() {
  struct Stage {
    unsigned convolutions;
    std::uint64_t channels;
  };
  constexpr std::array<Stage, 5> kStages{{{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}}};
  SetBuilder set("vgg16");
  std::uint64_t channels = 3;
  unsigned position = 0;  // counts rectifiers and poolings too, as the names do
  for (const Stage& stage : kStages) {
    for (unsigned i = 0; i < stage.convolutions; ++i, position += 2) {
      set.with_bias("features." + std::to_string(position), {stage.channels, channels, 3, 3},
                    stage.channels);
      channels = stage.channels;
    }
    ++position;
  }
  constexpr std::uint64_t kPooledSide = 7;
  constexpr std::uint64_t kDense = 4096;
  set.linear("classifier.0", channels * kPooledSide * kPooledSide, kDense);
  set.linear("classifier.3", kDense, kDense);
  set.linear("classifier.6", kDense, 1000);
  return std::move(set).take();
}

ParameterSet bert_base() {
  constexpr std::uint64_t kWidth = 768;
  constexpr std::uint64_t kInner = 3072;
  SetBuilder set("bert-base");
  set.tensor("embeddings.word_embeddings.weight", {30522, kWidth});
  set.tensor("embeddings.position_embeddings.weight", {512, kWidth});
  set.tensor("embeddings.token_type_embeddings.weight", {2, kWidth});
  set.norm("embeddings.LayerNorm", kWidth);
  for (unsigned i = 0; i < 12; ++i) {
    const std::string layer = "encoder.layer." + std::to_string(i) + ".";
    for (const char* part : {"query", "key", "value"}) {
      set.linear(layer + "attention.self." + part, kWidth, kWidth);
    }
    set.linear(layer + "attention.output.dense", kWidth, kWidth);
    set.norm(layer + "attention.output.LayerNorm", kWidth);
    set.linear(layer + "intermediate.dense", kWidth, kInner);
    set.linear(layer + "output.dense", kInner, kWidth);
    set.norm(layer + "output.LayerNorm", kWidth);
  }
  set.linear("pooler.dense", kWidth, kWidth);
  return std::move(set).take();
}

ParameterSet gpt2_small() {
  constexpr std::uint64_t kWidth = 768;
  SetBuilder set("gpt2");
  // The published weights of its dense layers are inputs x outputs.
  const auto transposed_linear = [&](const std::string& name, std::uint64_t inputs,
                                     std::uint64_t outputs) {
    set.with_bias(name, {inputs, outputs}, outputs);
  };
  set.tensor("wte.weight", {50257, kWidth});
  set.tensor("wpe.weight", {1024, kWidth});
  for (unsigned i = 0; i < 12; ++i) {
    const std::string block = "h." + std::to_string(i) + ".";
    set.norm(block + "ln_1", kWidth);
    transposed_linear(block + "attn.c_attn", kWidth, 3 * kWidth);
    transposed_linear(block + "attn.c_proj", kWidth, kWidth);
    set.norm(block + "ln_2", kWidth);
    transposed_linear(block + "mlp.c_fc", kWidth, 4 * kWidth);
    transposed_linear(block + "mlp.c_proj", 4 * kWidth, kWidth);
  }
  set.norm("ln_f", kWidth);
  return std::move(set).take();
}

Result<ParameterSet> named_parameter_set(std::string_view name) {
  if (name == "resnet50") return resnet50();
  if (name == "vgg16") return vgg16();
  if (name == "bert-base") return bert_base();
  if (name == "gpt2") return gpt2_small();
  return bad_input("model \"" + std::string(name.substr(0, 40)) +
                   "\": there are resnet50, vgg16, bert-base and gpt2");
}

}  // namespace selmcast
