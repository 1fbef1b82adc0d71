"""regard tree from the outside: a sentence of five words whose distances are counted by hand."""
import json
import os
import unittest

from regard import Case, f32, read

SENTENCE = """# sent_id = mats
1\tThe\t_\tDET\t_\t_\t2\tdet\t_\t_
2\tcat\t_\tNOUN\t_\t_\t3\tnsubj\t_\t_
3\tsat\t_\tVERB\t_\t_\t0\troot\t_\t_
4\ton\t_\tADP\t_\t_\t5\tcase\t_\t_
5\tmats\t_\tNOUN\t_\t_\t3\tobl\t_\t_
"""
DISTANCES = [[0, 1, 2, 4, 3], [1, 0, 1, 3, 2], [2, 1, 0, 2, 1], [4, 3, 2, 0, 1], [3, 2, 1, 1, 0]]


class Tree(Case):
    def setUp(self):
        super().setUp()
        with open(self.in_path, "w", encoding="utf-8") as file:
            file.write(SENTENCE + "\n1\tSí\t_\t_\t_\t_\t0\troot\t_\t_\n")

    def test_the_table_has_every_distance(self):
        lines = self.works("tree", self.in_path).splitlines()
        self.assertEqual(lines[0], "The cat sat on mats")
        self.assertEqual(lines[1].split(), ["word", "relation", "The", "cat", "sat", "on", "mats"])
        for line, row in zip(lines[2:7], DISTANCES):
            self.assertEqual([int(number) for number in line.split()[2:]], row)

    def test_json_holds_the_tree(self):
        tree = json.loads(self.works("tree", self.in_path, "--json"))
        self.assertEqual((tree["id"], tree["text"]), ("mats", "The cat sat on mats"))
        self.assertEqual(tree["heads"], [1, 2, -1, 4, 2])
        self.assertEqual(tree["distances"], DISTANCES)
        self.assertEqual(json.loads(self.works("tree", self.in_path, "--json", "--sentence", "mats")), tree)
        self.assertEqual(json.loads(self.works("tree", self.in_path, "--json", "--sentence", "2"))["words"], ["Sí"])

    def test_the_mask_is_what_attend_takes(self):
        trees = []
        for radius in [0, 1, 2]:
            self.works("tree", self.in_path, "-o", self.out_path, "--radius", radius)
            trees.append(read(self.out_path))
        for radius, tree in enumerate(trees):
            self.assertEqual(list(tree), ["mask"])
            self.assertEqual(list(tree["mask"].values), [int(d <= radius) for d in sum(DISTANCES, [])])
            # Equal scores: every word attends evenly to what it may see.
            self.write({"q": f32([1, 1, 5, 1], [0] * 5), "k": f32([1, 1, 5, 1], [0] * 5),
                        "v": f32([1, 1, 5, 1], [1, 2, 3, 4, 5]), "mask": tree["mask"]})
            self.works("attend", self.in_path, "-o", self.out_path)
            for out_value, row in zip(read(self.out_path)["out"].values, DISTANCES):
                seen = [word + 1 for word, distance in enumerate(row) if distance <= radius]
                self.assertAlmostEqual(out_value, sum(seen) / len(seen), 5)

    def test_wrong_use_is_told(self):
        self.fails(2, "tree", self.in_path, "--sentence", "3", says=["--sentence", "1 to 2", "'3'"])
        self.fails(2, "tree", self.in_path, "--radius", "2", says=["--radius"])
        self.fails(2, "tree", self.in_path, "-o", self.in_path, says=["is the file that is read"])
        self.fails(1, "tree", self.in_path + "x", says=[self.in_path + "x"])
        with open(self.in_path, "a", encoding="utf-8") as file:
            file.write("\n1\tbad line\n")
        self.fails(1, "tree", self.in_path, says=[self.in_path, "line 10", "2 columns"])


if __name__ == "__main__":
    unittest.main()
