"""A training run, whose report is tested in a browser and shown in the documentation."""

import torch


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Net(torch.nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(width) for _ in range(4)])
        self.head = torch.nn.Linear(width, 10)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
net = Net()
model = torch.compile(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(40):
    x = torch.randn(256, 256)
    loss = torch.nn.functional.cross_entropy(model(x), torch.randint(10, (256,)))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
