#include "train/parameter_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace selmcast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::uint64_t> shape_of(const ParameterSet& set, const std::string& name) {
  const auto at = std::ranges::find(set.tensors, name, &TensorSpec::name);
  return at == set.tensors.end() ? std::vector<std::uint64_t>{} : at->shape;
}

// Totals and tensor counts are those the frameworks publish for these models.

TEST(ParameterSet, ResNet50) {
  const ParameterSet set = resnet50();
  EXPECT_EQ(set.parameters(), 25'557'032U);
  EXPECT_EQ(set.bytes(), 102'228'128U);
  EXPECT_EQ(set.tensors.size(), 161U);
  EXPECT_EQ(set.tensors.front().name, "conv1.weight");
  EXPECT_THAT(shape_of(set, "conv1.weight"), ElementsAre(64, 3, 7, 7));
  EXPECT_THAT(shape_of(set, "layer1.0.downsample.0.weight"), ElementsAre(256, 64, 1, 1));
  EXPECT_THAT(shape_of(set, "layer3.5.conv2.weight"), ElementsAre(256, 256, 3, 3));
  EXPECT_THAT(shape_of(set, "layer4.0.conv1.weight"), ElementsAre(512, 1024, 1, 1));
  EXPECT_THAT(shape_of(set, "fc.weight"), ElementsAre(1000, 2048));
  EXPECT_TRUE(shape_of(set, "layer4.3.conv1.weight").empty());
}

TEST(ParameterSet, Vgg16) {
  const ParameterSet set = vgg16();
  EXPECT_EQ(set.parameters(), 138'357'544U);
  EXPECT_EQ(set.tensors.size(), 32U);
  EXPECT_THAT(shape_of(set, "features.0.weight"), ElementsAre(64, 3, 3, 3));
  EXPECT_THAT(shape_of(set, "features.28.weight"), ElementsAre(512, 512, 3, 3));
  EXPECT_THAT(shape_of(set, "features.17.weight"), ElementsAre(512, 256, 3, 3));
  EXPECT_THAT(shape_of(set, "classifier.0.weight"), ElementsAre(4096, 25088));
}

TEST(ParameterSet, BertBase) {
  const ParameterSet set = bert_base();
  EXPECT_EQ(set.parameters(), 109'482'240U);
  EXPECT_EQ(set.tensors.size(), 199U);
  EXPECT_THAT(shape_of(set, "embeddings.word_embeddings.weight"), ElementsAre(30522, 768));
  EXPECT_THAT(shape_of(set, "encoder.layer.11.intermediate.dense.weight"), ElementsAre(3072, 768));
  EXPECT_THAT(shape_of(set, "pooler.dense.bias"), ElementsAre(768));
}

TEST(ParameterSet, Gpt2Small) {
  const ParameterSet set = gpt2_small();
  EXPECT_EQ(set.parameters(), 124'439'808U);
  EXPECT_EQ(set.tensors.size(), 148U);
  EXPECT_THAT(shape_of(set, "wte.weight"), ElementsAre(50257, 768));
  EXPECT_THAT(shape_of(set, "h.0.attn.c_attn.weight"), ElementsAre(768, 2304));
  EXPECT_THAT(shape_of(set, "h.11.mlp.c_proj.weight"), ElementsAre(3072, 768));
}

TEST(ParameterSet, NamesAreUnique) {
  for (const ParameterSet& set : {resnet50(), vgg16(), bert_base(), gpt2_small()}) {
    std::set<std::string> names;
    for (const TensorSpec& tensor : set.tensors) {
      EXPECT_TRUE(names.insert(tensor.name).second) << set.name << " " << tensor.name;
    }
  }
}

TEST(ParameterSet, IsFoundByName) {
  for (const char* name : {"resnet50", "vgg16", "bert-base", "gpt2"}) {
    const auto set = named_parameter_set(name);
    ASSERT_TRUE(set) << name;
    EXPECT_EQ(set->name, name);
  }
  const auto unknown = named_parameter_set("resnet51");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().kind, ErrorKind::bad_input);
  EXPECT_THAT(unknown.error().message, HasSubstr("gpt2"));
}

}  // namespace
}  // namespace selmcast
