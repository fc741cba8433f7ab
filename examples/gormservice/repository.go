package main

import (
	"context"

	"gorm.io/gorm"
)

// An Article is on sale.
type Article struct {
	SKU    string  `gorm:"primaryKey" json:"sku"`
	Stock  int     `json:"stock"`
	Orders []Order `gorm:"foreignKey:SKU;references:SKU" json:"orders"`
}

// An Order is a unit that was sold.
type Order struct {
	ID    int64  `gorm:"primaryKey" json:"id"`
	SKU   string `json:"sku"`
	Buyer string `json:"buyer"`
}

// FenceResource is the lock under which an article and its orders are written.
func (a Article) FenceResource() string { return resource(a.SKU) }

// FenceResource is that of the article.
func (o Order) FenceResource() string { return resource(o.SKU) }

func resource(sku string) string { return "article:" + sku }

// A repository keeps articles. It is as it was before there was a guard.
type repository struct{ db *gorm.DB }

func (r repository) create(ctx context.Context, a *Article) error {
	return r.db.WithContext(ctx).Create(a).Error
}

func (r repository) get(ctx context.Context, sku string) (*Article, error) {
	var a Article
	err := r.db.WithContext(ctx).Preload("Orders").Take(&a, "sku = ?", sku).Error
	return &a, err
}

// sell writes what is left of an article, and the order.
func (r repository) sell(ctx context.Context, a *Article, buyer string) (*Order, error) {
	o := &Order{SKU: a.SKU, Buyer: buyer}
	err := r.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Model(a).Update("stock", a.Stock-1).Error; err != nil {
			return err
		}
		return tx.Create(o).Error
	})
	return o, err
}

// restock is older than the models and speaks SQL.
func (r repository) restock(ctx context.Context, sku string, units int) (found bool, err error) {
	done := r.db.WithContext(ctx).Exec("UPDATE articles SET stock = stock + ? WHERE sku = ?", units, sku)
	return done.RowsAffected == 1, done.Error
}

func (r repository) setStock(ctx context.Context, sku string, stock int) error {
	return r.db.WithContext(ctx).Exec("UPDATE articles SET stock = ? WHERE sku = ?", stock, sku).Error
}
